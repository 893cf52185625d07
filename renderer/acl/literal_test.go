package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	vppacl "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
)

// packet is the first of a flow. For ICMP the ports are type and code.
type packet struct {
	src, dst     netip.Addr
	proto        uint8
	sport, dport uint16
}

func (p packet) String() string {
	return fmt.Sprintf("%s:%d -> %s:%d proto %d", p.src, p.sport, p.dst, p.dport, p.proto)
}

func (p packet) hasPorts() bool { return p.proto == 6 || p.proto == 17 }

// world is what Felix's messages say, read literally and slowly: the text of rules, one packet at a time.
type world struct {
	sets     map[string]*felix.IPSetUpdate
	policies map[string]*felix.Policy // by tier|name
	profiles map[string]*felix.Profile
	eps      map[string]*felix.WorkloadEndpoint // by workload
	hosts    map[string]*felix.HostEndpoint
}

func newWorld() *world {
	return &world{
		sets: map[string]*felix.IPSetUpdate{}, policies: map[string]*felix.Policy{}, profiles: map[string]*felix.Profile{},
		eps: map[string]*felix.WorkloadEndpoint{}, hosts: map[string]*felix.HostEndpoint{},
	}
}

// take applies one message.
func (w *world) take(m *felix.ToDataplane) {
	switch m := m.GetPayload().(type) {
	case *felix.ToDataplane_IpsetUpdate:
		w.sets[m.IpsetUpdate.GetId()] = proto.Clone(m.IpsetUpdate).(*felix.IPSetUpdate)
	case *felix.ToDataplane_IpsetDeltaUpdate:
		s := w.sets[m.IpsetDeltaUpdate.GetId()]
		s.Members = slices.DeleteFunc(s.Members, func(t string) bool { return slices.Contains(m.IpsetDeltaUpdate.GetRemovedMembers(), t) })
		s.Members = append(s.Members, m.IpsetDeltaUpdate.GetAddedMembers()...)
	case *felix.ToDataplane_IpsetRemove:
		delete(w.sets, m.IpsetRemove.GetId())
	case *felix.ToDataplane_ActivePolicyUpdate:
		w.policies[m.ActivePolicyUpdate.GetId().GetTier()+"|"+m.ActivePolicyUpdate.GetId().GetName()] = m.ActivePolicyUpdate.GetPolicy()
	case *felix.ToDataplane_ActivePolicyRemove:
		delete(w.policies, m.ActivePolicyRemove.GetId().GetTier()+"|"+m.ActivePolicyRemove.GetId().GetName())
	case *felix.ToDataplane_ActiveProfileUpdate:
		w.profiles[m.ActiveProfileUpdate.GetId().GetName()] = m.ActiveProfileUpdate.GetProfile()
	case *felix.ToDataplane_ActiveProfileRemove:
		delete(w.profiles, m.ActiveProfileRemove.GetId().GetName())
	case *felix.ToDataplane_WorkloadEndpointUpdate:
		w.eps[m.WorkloadEndpointUpdate.GetId().GetWorkloadId()] = m.WorkloadEndpointUpdate.GetEndpoint()
	case *felix.ToDataplane_WorkloadEndpointRemove:
		delete(w.eps, m.WorkloadEndpointRemove.GetId().GetWorkloadId())
	case *felix.ToDataplane_HostEndpointUpdate:
		w.hosts[m.HostEndpointUpdate.GetId().GetEndpointId()] = m.HostEndpointUpdate.GetEndpoint()
	case *felix.ToDataplane_HostEndpointRemove:
		delete(w.hosts, m.HostEndpointRemove.GetId().GetEndpointId())
	}
}

// allows tells whether an endpoint's policies let a packet pass.
func (w *world) allows(e *felix.WorkloadEndpoint, egress bool, p packet) bool {
	if e.GetState() != "active" {
		return false
	}
	if verdict := w.tiers(e.GetTiers(), egress, p); verdict != "" {
		return verdict == "allow"
	}
	for _, name := range e.GetProfileIds() {
		prof := w.profiles[name]
		if prof == nil {
			return false
		}
		rules := prof.GetInboundRules()
		if egress {
			rules = prof.GetOutboundRules()
		}
		if verdict := w.first(rules, p); verdict != "" {
			return verdict == "allow"
		}
	}
	return false
}

// tiers is "allow", "deny", or "" if no tier decides.
func (w *world) tiers(tiers []*felix.TierInfo, egress bool, p packet) string {
next:
	for _, t := range tiers {
		list := t.GetIngressPolicies()
		if egress {
			list = t.GetEgressPolicies()
		}
		enforced := false
		for _, name := range list {
			if strings.Contains(name, "staged:") {
				continue
			}
			enforced = true
			pol := w.policies[t.GetName()+"|"+name]
			if pol == nil {
				return "deny"
			}
			rules := pol.GetInboundRules()
			if egress {
				rules = pol.GetOutboundRules()
			}
			switch v := w.first(rules, p); v {
			case "":
			case "pass", "next-tier":
				continue next
			default:
				return v
			}
		}
		if enforced && t.GetDefaultAction() != "Pass" {
			return "deny"
		}
	}
	return ""
}

func (w *world) first(rules []*felix.Rule, p packet) string {
	for _, r := range rules {
		if r.GetAction() == "log" || !w.matches(r, p) {
			continue
		}
		if r.GetAction() == "" {
			return "allow"
		}
		return r.GetAction()
	}
	return ""
}

var protoNames = map[string]uint8{"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "sctp": 132, "udplite": 136}

func isProto(pr *felix.Protocol, proto uint8) bool {
	if name := pr.GetName(); name != "" {
		return protoNames[strings.ToLower(name)] == proto
	}
	return pr.GetNumber() == int32(proto)
}

func (w *world) matches(r *felix.Rule, p packet) bool {
	v := 4
	icmpProto := uint8(1)
	if p.src.Is6() {
		v, icmpProto = 6, 58
	}
	if r.GetIpVersion() != felix.IPVersion_ANY && int(r.GetIpVersion()) != v {
		return false
	}
	if r.GetProtocol() != nil && !isProto(r.GetProtocol(), p.proto) || r.GetNotProtocol() != nil && isProto(r.GetNotProtocol(), p.proto) {
		return false
	}
	isICMP := func(typ, code int32) bool {
		return p.proto == icmpProto && int32(p.sport) == typ && (code < 0 || int32(p.dport) == code)
	}
	switch i := r.GetIcmp().(type) {
	case *felix.Rule_IcmpType:
		if !isICMP(i.IcmpType, -1) {
			return false
		}
	case *felix.Rule_IcmpTypeCode:
		if !isICMP(i.IcmpTypeCode.GetType(), i.IcmpTypeCode.GetCode()) {
			return false
		}
	}
	switch i := r.GetNotIcmp().(type) {
	case *felix.Rule_NotIcmpType:
		if isICMP(i.NotIcmpType, -1) {
			return false
		}
	case *felix.Rule_NotIcmpTypeCode:
		if isICMP(i.NotIcmpTypeCode.GetType(), i.NotIcmpTypeCode.GetCode()) {
			return false
		}
	}
	return w.side(p, p.src, p.sport, r.GetSrcNet(), r.GetNotSrcNet(), r.GetSrcPorts(), r.GetNotSrcPorts(), r.GetSrcIpSetIds(), r.GetNotSrcIpSetIds(),
		r.GetSrcNamedPortIpSetIds(), r.GetNotSrcNamedPortIpSetIds(), nil) &&
		w.side(p, p.dst, p.dport, r.GetDstNet(), r.GetNotDstNet(), r.GetDstPorts(), r.GetNotDstPorts(), r.GetDstIpSetIds(), r.GetNotDstIpSetIds(),
			r.GetDstNamedPortIpSetIds(), r.GetNotDstNamedPortIpSetIds(), r.GetDstIpPortSetIds())
}

func (w *world) side(p packet, a netip.Addr, port uint16, nets, notNets []string, ports, notPorts []*felix.PortRange, sets, notSets, named, notNamed, ipPorts []string) bool {
	inNet := func(n string) bool { return netip.MustParsePrefix(n).Contains(a) }
	inPort := func(r *felix.PortRange) bool { return p.hasPorts() && r.GetFirst() <= int32(port) && int32(port) <= r.GetLast() }
	inSet := func(id string) bool { return slices.ContainsFunc(w.sets[id].GetMembers(), inNet) }
	inPorts := func(id string) bool {
		name := map[uint8]string{6: "tcp", 17: "udp"}[p.proto]
		return name != "" && slices.Contains(w.sets[id].GetMembers(), a.String()+","+name+":"+strconv.Itoa(int(port)))
	}
	all := func(ids []string, in func(string) bool) bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return !in(id) })
	}
	switch {
	case len(nets) > 0 && !slices.ContainsFunc(nets, inNet), slices.ContainsFunc(notNets, inNet):
		return false
	case len(ports)+len(named) > 0 && !slices.ContainsFunc(ports, inPort) && !slices.ContainsFunc(named, inPorts):
		return false
	case slices.ContainsFunc(notPorts, inPort), slices.ContainsFunc(notNamed, inPorts), !all(ipPorts, inPorts):
		return false
	}
	return all(sets, inSet) && !slices.ContainsFunc(notSets, inSet)
}

// book is a sink that keeps values as a VPP without faults would have them, and judges packets by them.
type book struct {
	acls   map[string]*vppacl.ACL
	lists  map[string]*contivacl.InterfaceACLs
	notes  map[string][]model.Note
	writes int // values put
	rules  int // in the ACLs put
}

func newBook() *book {
	return &book{acls: map[string]*vppacl.ACL{}, lists: map[string]*contivacl.InterfaceACLs{}, notes: map[string][]model.Note{}}
}

func (b *book) Set(owner string, values map[string]proto.Message, notes []model.Note) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(owner, Owner), "/")
	switch kind {
	case "table":
		delete(b.acls, rest)
	case "interface":
		delete(b.lists, rest)
	default:
		b.notes[owner] = notes
		if notes == nil {
			delete(b.notes, owner)
		}
	}
	for _, v := range values {
		b.writes++
		switch v := v.(type) {
		case *vppacl.ACL:
			b.acls[v.GetName()] = v
			b.rules += len(v.GetRules())
		case *contivacl.InterfaceACLs:
			b.lists[v.GetInterface()] = v
		}
	}
}

// clone is a state to compare with later. Values are immutable.
func (b *book) clone() *book {
	out := newBook()
	for k, v := range b.acls {
		out.acls[k] = v
	}
	for k, v := range b.lists {
		out.lists[k] = v
	}
	return out
}

// passes judges the first packet of a flow at a hook; place and rule are those that decided, -1 if none.
func (b *book) passes(iface string, output bool, p packet) (ok bool, place, rule int) {
	l := b.lists[iface]
	names := l.GetInput()
	if output {
		names = l.GetOutput()
	}
	if len(names) == 0 {
		return true, -1, -1
	}
	for place, name := range names {
		acl := b.acls[name]
		if acl == nil {
			panic("list of " + iface + " names " + name + ", which is not there")
		}
		for rule, r := range acl.GetRules() {
			if ruleMatches(r.GetIpRule(), p) {
				return r.GetAction() != vppacl.ACL_Rule_DENY, place, rule
			}
		}
	}
	return false, -1, -1
}

func ruleMatches(r *vppacl.ACL_Rule_IpRule, p packet) bool {
	in := func(n string, a netip.Addr) bool { return netip.MustParsePrefix(n).Contains(a) }
	if !in(r.GetIp().GetSourceNetwork(), p.src) || !in(r.GetIp().GetDestinationNetwork(), p.dst) {
		return false
	}
	ports := func(s, d *vppacl.ACL_Rule_IpRule_PortRange) bool {
		return s.GetLowerPort() <= uint32(p.sport) && uint32(p.sport) <= s.GetUpperPort() && d.GetLowerPort() <= uint32(p.dport) && uint32(p.dport) <= d.GetUpperPort()
	}
	switch {
	case r.GetTcp() != nil:
		return p.proto == 6 && ports(r.GetTcp().GetSourcePortRange(), r.GetTcp().GetDestinationPortRange())
	case r.GetUdp() != nil:
		return p.proto == 17 && ports(r.GetUdp().GetSourcePortRange(), r.GetUdp().GetDestinationPortRange())
	case r.GetIcmp() != nil:
		proto := uint8(1)
		if r.GetIcmp().GetIcmpv6() {
			proto = 58
		}
		t, c := r.GetIcmp().GetIcmpTypeRange(), r.GetIcmp().GetIcmpCodeRange()
		return p.proto == proto && t.GetFirst() <= uint32(p.sport) && uint32(p.sport) <= t.GetLast() && c.GetFirst() <= uint32(p.dport) && uint32(p.dport) <= c.GetLast()
	}
	return r.GetIp().GetProtocol() == 0 || r.GetIp().GetProtocol() == uint32(p.proto)
}
