package acl

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	vppacl "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
)

// packet is the first packet of a flow. For ICMP the ports are type and code.
type packet struct {
	src, dst     netip.Addr
	proto        uint8
	sport, dport uint16
}

func (p packet) String() string {
	return fmt.Sprintf("%s:%d -> %s:%d proto %d", p.src, p.sport, p.dst, p.dport, p.proto)
}

func (p packet) hasPorts() bool { return p.proto == 6 || p.proto == 17 || p.proto == 132 }

// translated reports whether nat44 has mappings for its protocol.
func (p packet) translated() bool { return p.proto == 6 || p.proto == 17 }

// world evaluates Felix's messages by definition and slowly: the text of rules, one packet at a time.
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

// allows reports whether an endpoint's policies let a packet pass.
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

// tiers returns "allow", "deny", or "" if no tier decides.
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
	inNet := func(n string) bool { return prefix(n).Contains(a) }
	inPort := func(r *felix.PortRange) bool {
		return p.hasPorts() && r.GetFirst() <= int32(port) && int32(port) <= r.GetLast()
	}
	inSet := func(id string) bool { return slices.ContainsFunc(w.sets[id].GetMembers(), inNet) }
	inPorts := func(id string) bool {
		name := map[uint8]string{6: "tcp", 17: "udp", 132: "sctp"}[p.proto]
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

// book is a sink that keeps values as a VPP without faults would have them, and evaluates packets by them.
type book struct {
	acls   map[string]*vppacl.ACL
	lists  map[string]*contivacl.InterfaceACLs
	lines  map[string][]line // of acls
	hooks  map[hook][]placed // lines by the packets they may match
	ports  map[string]*contivacl.SCTPPorts
	notes  map[string][]model.Note
	writes int // values put
	rules  int // in the ACLs put
}

func newBook() *book {
	return &book{acls: map[string]*vppacl.ACL{}, lines: map[string][]line{}, hooks: map[hook][]placed{}, lists: map[string]*contivacl.InterfaceACLs{}, ports: map[string]*contivacl.SCTPPorts{}, notes: map[string][]model.Note{}}
}

func (b *book) Set(owner string, values map[string]proto.Message, notes []model.Note) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(owner, Owner), "/")
	switch kind {
	case "table":
		delete(b.acls, rest)
	case "interface":
		delete(b.lists, rest)
	case "ports":
		delete(b.ports, rest)
	default:
		b.notes[owner] = notes
		if notes == nil {
			delete(b.notes, owner)
		}
	}
	clear(b.hooks)
	for _, v := range values {
		b.writes++
		switch v := v.(type) {
		case *vppacl.ACL:
			b.acls[v.GetName()], b.lines[v.GetName()] = v, linesOf(v)
			b.rules += len(v.GetRules())
		case *contivacl.InterfaceACLs:
			b.lists[v.GetInterface()] = v
		case *contivacl.SCTPPorts:
			b.ports[v.GetInterface()] = v
		}
	}
}

// clone returns a copy to compare with later. Values are immutable.
func (b *book) clone() *book {
	out := newBook()
	for k, v := range b.acls {
		out.acls[k], out.lines[k] = v, b.lines[k]
	}
	for k, v := range b.lists {
		out.lists[k] = v
	}
	maps.Copy(out.ports, b.ports)
	return out
}

// hook is an input or output with the addresses of a packet evaluated there.
type hook struct {
	iface    string
	output   bool
	src, dst netip.Addr
}

// placed is a line of a list.
type placed struct {
	*line
	place, rule int
}

// passes evaluates the first packet of a flow at a hook; place and rule are those that decided, -1 if none.
func (b *book) passes(iface string, output bool, p packet) (ok bool, place, rule int) {
	l := b.lists[iface]
	names := l.GetInput()
	if output {
		names = l.GetOutput()
	}
	if len(names) == 0 {
		return true, -1, -1
	}
	at := hook{iface, output, p.src, p.dst}
	lines, ready := b.hooks[at]
	if !ready {
		for place, name := range names {
			if b.acls[name] == nil {
				panic("list of " + iface + " names " + name + ", which is not there")
			}
			for rule := range b.lines[name] {
				if r := &b.lines[name][rule]; r.src.Contains(p.src) && r.dst.Contains(p.dst) {
					lines = append(lines, placed{r, place, rule})
				}
			}
		}
		b.hooks[at] = lines
	}
	for _, l := range lines {
		if l.matches(p) {
			return l.permit, l.place, l.rule
		}
	}
	return false, -1, -1
}

// line is a rule of an ACL in VPP.
type line struct {
	permit   bool
	src, dst netip.Prefix
	proto    uint8
	s, d     [2]uint16
}

func (l *line) matches(p packet) bool {
	return (l.proto == 0 || l.proto == p.proto) && l.s[0] <= p.sport && p.sport <= l.s[1] && l.d[0] <= p.dport && p.dport <= l.d[1]
}

// begins evaluates the first packet of an SCTP association by the filter beside the lists; rule is the one that decided, -1 if none.
func (b *book) begins(iface string, output bool, p packet) (ok bool, rule int) {
	rules := b.ports[iface].GetInput()
	if output {
		rules = b.ports[iface].GetOutput()
	}
	if len(rules) == 0 || p.proto != 132 {
		return true, -1
	}
	in := func(r *contivacl.SCTPPorts_Ports, port uint16) bool {
		return r == nil || r.GetLower() <= uint32(port) && uint32(port) <= r.GetUpper()
	}
	for i, r := range rules {
		if prefix(r.GetSourceNetwork()).Contains(p.src) && prefix(r.GetDestinationNetwork()).Contains(p.dst) && in(r.GetSource(), p.sport) && in(r.GetDestination(), p.dport) {
			return r.GetPermit(), i
		}
	}
	return false, -1
}

func linesOf(a *vppacl.ACL) []line {
	out := make([]line, len(a.GetRules()))
	for i, r := range a.GetRules() {
		ip := r.GetIpRule()
		out[i] = line{
			r.GetAction() != vppacl.ACL_Rule_DENY, prefix(ip.GetIp().GetSourceNetwork()), prefix(ip.GetIp().GetDestinationNetwork()),
			uint8(ip.GetIp().GetProtocol()),
			[2]uint16{0, 65535},
			[2]uint16{0, 65535},
		}
		l := &out[i]
		ports := func(proto uint8, s, d *vppacl.ACL_Rule_IpRule_PortRange) {
			l.proto = proto
			l.s = [2]uint16{uint16(s.GetLowerPort()), uint16(s.GetUpperPort())}
			l.d = [2]uint16{uint16(d.GetLowerPort()), uint16(d.GetUpperPort())}
		}
		switch {
		case ip.GetTcp() != nil:
			ports(6, ip.GetTcp().GetSourcePortRange(), ip.GetTcp().GetDestinationPortRange())
		case ip.GetUdp() != nil:
			ports(17, ip.GetUdp().GetSourcePortRange(), ip.GetUdp().GetDestinationPortRange())
		case ip.GetIcmp() != nil:
			t, c := ip.GetIcmp().GetIcmpTypeRange(), ip.GetIcmp().GetIcmpCodeRange()
			l.s, l.d = [2]uint16{uint16(t.GetFirst()), uint16(t.GetLast())}, [2]uint16{uint16(c.GetFirst()), uint16(c.GetLast())}
			if l.proto = 1; ip.GetIcmp().GetIcmpv6() {
				l.proto = 58
			}
		}
	}
	return out
}

var (
	parsedMu sync.Mutex
	parsed   = map[string]netip.Prefix{}
)

// prefix parses a prefix, with a cache.
func prefix(text string) netip.Prefix {
	parsedMu.Lock()
	defer parsedMu.Unlock()
	p, ok := parsed[text]
	if !ok {
		p = netip.MustParsePrefix(text)
		parsed[text] = p
	}
	return p
}
