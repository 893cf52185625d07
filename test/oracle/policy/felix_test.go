package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// messages is what Felix's messages say, read literally: the acceptance test of what a data plane makes of them. It holds
// the state of one node.
type messages struct {
	sets      map[string]map[string]bool
	policies  map[string]*felix.Policy
	profiles  map[string]*felix.Profile
	workloads map[string]*felix.WorkloadEndpoint
	hosts     map[string]*felix.HostEndpoint
	at        map[netip.Addr]*felix.WorkloadEndpoint
	parsed    map[string]*set
	broken    []string // what a data plane may rely on, and was not so
}

// set is an IP set, parsed.
type set struct {
	nets  []netip.Prefix
	ports map[string]bool // "10.0.0.1,tcp:80"
}

func newMessages() *messages {
	return &messages{
		sets: map[string]map[string]bool{}, policies: map[string]*felix.Policy{}, profiles: map[string]*felix.Profile{},
		workloads: map[string]*felix.WorkloadEndpoint{}, hosts: map[string]*felix.HostEndpoint{}, parsed: map[string]*set{},
	}
}

func (m *messages) complain(format string, args ...any) {
	m.broken = append(m.broken, fmt.Sprintf(format, args...))
}

// OnUpdate takes one message.
func (m *messages) OnUpdate(u *felix.ToDataplane) {
	switch p := u.Payload.(type) {
	case *felix.ToDataplane_IpsetUpdate:
		s := map[string]bool{}
		for _, member := range p.IpsetUpdate.Members {
			if s[member] {
				m.complain("set %s has %s twice", p.IpsetUpdate.Id, member)
			}
			s[member] = true
		}
		m.sets[p.IpsetUpdate.Id] = s
		delete(m.parsed, p.IpsetUpdate.Id)
	case *felix.ToDataplane_IpsetDeltaUpdate:
		m.delta(p.IpsetDeltaUpdate)
	case *felix.ToDataplane_IpsetRemove:
		delete(m.sets, p.IpsetRemove.Id)
		delete(m.parsed, p.IpsetRemove.Id)
	case *felix.ToDataplane_ActivePolicyUpdate:
		m.policies[policyKey(p.ActivePolicyUpdate.Id.Tier, p.ActivePolicyUpdate.Id.Name)] = p.ActivePolicyUpdate.Policy
	case *felix.ToDataplane_ActivePolicyRemove:
		delete(m.policies, policyKey(p.ActivePolicyRemove.Id.Tier, p.ActivePolicyRemove.Id.Name))
	case *felix.ToDataplane_ActiveProfileUpdate:
		m.profiles[p.ActiveProfileUpdate.Id.Name] = p.ActiveProfileUpdate.Profile
	case *felix.ToDataplane_ActiveProfileRemove:
		delete(m.profiles, p.ActiveProfileRemove.Id.Name)
	case *felix.ToDataplane_WorkloadEndpointUpdate:
		m.workloads[p.WorkloadEndpointUpdate.Id.WorkloadId] = p.WorkloadEndpointUpdate.Endpoint
		m.at = nil
	case *felix.ToDataplane_WorkloadEndpointRemove:
		delete(m.workloads, p.WorkloadEndpointRemove.Id.WorkloadId)
		m.at = nil
	case *felix.ToDataplane_HostEndpointUpdate:
		m.hosts[p.HostEndpointUpdate.Id.EndpointId] = p.HostEndpointUpdate.Endpoint
	case *felix.ToDataplane_HostEndpointRemove:
		delete(m.hosts, p.HostEndpointRemove.Id.EndpointId)
	}
}

func policyKey(tier, name string) string { return tier + " " + name }

func (m *messages) delta(d *felix.IPSetDeltaUpdate) {
	s := m.sets[d.Id]
	if s == nil {
		m.complain("delta of unknown set %s", d.Id)
		return
	}
	for _, member := range d.AddedMembers {
		if s[member] {
			m.complain("set %s gains %s twice", d.Id, member)
		}
		s[member] = true
	}
	for _, member := range d.RemovedMembers {
		if !s[member] {
			m.complain("set %s loses %s, which it has not", d.Id, member)
		}
		delete(s, member)
	}
	delete(m.parsed, d.Id)
}

// set is an IP set by its identifier.
func (m *messages) set(id string) *set {
	if s := m.parsed[id]; s != nil {
		return s
	}
	members, known := m.sets[id]
	if !known {
		m.complain("a rule refers to unknown set %s", id)
	}
	s := &set{ports: map[string]bool{}}
	for member := range members {
		if strings.Contains(member, ",") {
			s.ports[member] = true
			continue
		}
		s.nets = append(s.nets, netip.MustParsePrefix(member))
	}
	m.parsed[id] = s
	return s
}

func (s *set) has(a netip.Addr) bool {
	return slices.ContainsFunc(s.nets, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (s *set) hasPort(a netip.Addr, proto policy.Protocol, port uint16) bool {
	return s.ports[fmt.Sprintf("%s,%s:%d", a, strings.ToLower(proto.String()), port)]
}

func (m *messages) endpoint(a netip.Addr) *felix.WorkloadEndpoint {
	if m.at == nil {
		m.at = map[netip.Addr]*felix.WorkloadEndpoint{}
		for _, w := range m.workloads {
			for _, text := range slices.Concat(w.Ipv4Nets, w.Ipv6Nets) {
				m.at[netip.MustParsePrefix(text).Addr()] = w
			}
		}
	}
	return m.at[a]
}

// allows is the verdict of one direction of a local endpoint.
func (m *messages) allows(w *felix.WorkloadEndpoint, egress bool, f *policy.Flow) bool {
	return w.State == "active" && m.run(w.Tiers, w.ProfileIds, false, egress, f)
}

// run goes through tiers in order, in them policies in order, in them rules in order; a tier with policies ends with its
// default action; profiles follow, unless the packet is forwarded; what nothing allows is denied.
func (m *messages) run(tiers []*felix.TierInfo, profiles []string, forwarded, egress bool, f *policy.Flow) bool {
	for _, tier := range tiers {
		names := tier.IngressPolicies
		if egress {
			names = tier.EgressPolicies
		}
		enforced := 0
		verdict := ""
		for _, name := range names {
			if strings.Contains(name, "staged:") {
				continue
			}
			enforced++
			p := m.policies[policyKey(tier.Name, name)]
			if p == nil {
				m.complain("endpoint refers to unknown policy %s %s", tier.Name, name)
				return false
			}
			if verdict = m.first(p.InboundRules, p.OutboundRules, egress, f); verdict != "" {
				break
			}
		}
		switch {
		case verdict == "allow" || verdict == "deny":
			return verdict == "allow"
		case verdict == "" && enforced > 0 && tier.DefaultAction != "Pass":
			return false
		}
	}
	if forwarded {
		return true
	}
	for _, name := range profiles {
		p := m.profiles[name]
		if p == nil {
			m.complain("endpoint refers to unknown profile %s", name)
			return false
		}
		if v := m.first(p.InboundRules, p.OutboundRules, egress, f); v != "" {
			return v == "allow"
		}
	}
	return false
}

// first is the action of the first rule that matches; "" if none does.
func (m *messages) first(in, out []*felix.Rule, egress bool, f *policy.Flow) string {
	if egress {
		in = out
	}
	for _, r := range in {
		if r.Action == "log" || !m.matches(r, f) {
			continue
		}
		switch r.Action {
		case "", "allow":
			return "allow"
		case "deny":
			return "deny"
		case "next-tier", "pass":
			return "pass"
		}
		m.complain("action %q", r.Action)
		return "deny"
	}
	return ""
}

func (m *messages) matches(r *felix.Rule, f *policy.Flow) bool {
	version := felix.IPVersion_IPV6
	if f.Dst.Is4() {
		version = felix.IPVersion_IPV4
	}
	switch {
	case r.IpVersion != felix.IPVersion_ANY && r.IpVersion != version:
		return false
	case r.Protocol != nil && !isProtocol(r.Protocol, f.Proto):
		return false
	case r.NotProtocol != nil && isProtocol(r.NotProtocol, f.Proto):
		return false
	case !m.matchesICMP(r, f):
		return false
	}
	src := half{r.SrcNet, r.NotSrcNet, r.SrcPorts, r.NotSrcPorts, r.SrcIpSetIds, r.NotSrcIpSetIds, r.SrcNamedPortIpSetIds, r.NotSrcNamedPortIpSetIds, nil}
	dst := half{r.DstNet, r.NotDstNet, r.DstPorts, r.NotDstPorts, r.DstIpSetIds, r.NotDstIpSetIds, r.DstNamedPortIpSetIds, r.NotDstNamedPortIpSetIds, r.DstIpPortSetIds}
	return m.matchesHalf(src, f.Proto, f.Src, f.SrcPort) && m.matchesHalf(dst, f.Proto, f.Dst, f.DstPort)
}

func isProtocol(p *felix.Protocol, proto policy.Protocol) bool {
	switch n := p.NumberOrName.(type) {
	case *felix.Protocol_Number:
		return n.Number == int32(proto)
	case *felix.Protocol_Name:
		return n.Name == strings.ToLower(proto.String())
	}
	return false
}

func (m *messages) matchesICMP(r *felix.Rule, f *policy.Flow) bool {
	is := func(t, c int32, code bool) bool {
		return !f.Proto.Ports() && int32(f.Type) == t && (!code || int32(f.Code) == c)
	}
	switch i := r.Icmp.(type) {
	case *felix.Rule_IcmpType:
		if !is(i.IcmpType, 0, false) {
			return false
		}
	case *felix.Rule_IcmpTypeCode:
		if !is(i.IcmpTypeCode.Type, i.IcmpTypeCode.Code, true) {
			return false
		}
	}
	switch i := r.NotIcmp.(type) {
	case *felix.Rule_NotIcmpType:
		return !is(i.NotIcmpType, 0, false)
	case *felix.Rule_NotIcmpTypeCode:
		return !is(i.NotIcmpTypeCode.Type, i.NotIcmpTypeCode.Code, true)
	}
	return true
}

// half is what a rule says about one end of a flow.
type half struct {
	nets, notNets         []string
	ports, notPorts       []*felix.PortRange
	sets, notSets         []string
	named, notNamed, both []string
}

func (m *messages) matchesHalf(h half, proto policy.Protocol, a netip.Addr, port uint16) bool {
	inNets := func(list []string) bool {
		return slices.ContainsFunc(list, func(text string) bool { return netip.MustParsePrefix(text).Contains(a) })
	}
	inPorts := func(list []*felix.PortRange, named []string) bool {
		if !proto.Ports() {
			return false
		}
		for _, r := range list {
			if int32(port) >= r.First && int32(port) <= r.Last {
				return true
			}
		}
		return slices.ContainsFunc(named, func(id string) bool { return m.set(id).hasPort(a, proto, port) })
	}
	switch {
	case len(h.nets) > 0 && !inNets(h.nets), inNets(h.notNets):
		return false
	case len(h.ports)+len(h.named) > 0 && !inPorts(h.ports, h.named), inPorts(h.notPorts, h.notNamed):
		return false
	}
	for _, id := range h.sets {
		if !m.set(id).has(a) {
			return false
		}
	}
	for _, id := range h.notSets {
		if m.set(id).has(a) {
			return false
		}
	}
	for _, id := range h.both {
		if !m.set(id).hasPort(a, proto, port) {
			return false
		}
	}
	return true
}
