package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/classifier"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// packet is what an access list sees, and what decides about ports of SCTP beside it.
type packet struct {
	src, dst     netip.Addr
	proto        policy.Protocol
	sport, dport uint16 // ICMP: type and code; other protocols than TCP, UDP and SCTP: 0, VPP does not look
	begins       bool   // an association of SCTP
}

func packetOf(f *policy.Flow) packet {
	p := packet{src: f.Src, dst: f.Dst, proto: f.Proto}
	switch f.Proto {
	case policy.TCP, policy.UDP:
		p.sport, p.dport = f.SrcPort, f.DstPort
	case policy.SCTP:
		p.sport, p.dport, p.begins = f.SrcPort, f.DstPort, true
	case policy.ICMP, policy.ICMPv6:
		p.sport, p.dport = uint16(f.Type), uint16(f.Code)
	}
	return p
}

// answer returns the reply packet; false if sessions do not track one.
func (p packet) answer() (packet, bool) {
	a := packet{src: p.dst, dst: p.src, proto: p.proto, sport: p.dport, dport: p.sport}
	switch p.proto {
	case policy.TCP, policy.UDP:
		return a, true
	case policy.ICMP:
		a.sport, a.dport = 0, 0
		return a, p.sport == 8
	case policy.ICMPv6:
		a.sport, a.dport = 129, 0
		return a, p.sport == 128
	}
	return a, p.proto == policy.SCTP
}

// line is a rule of an access list, as VPP has it.
type line struct {
	permit, reflect bool
	src, dst        netip.Prefix // invalid: any address of the family
	v4, v6          bool
	proto           policy.Protocol // 0: any
	sports, dports  [2]uint16
}

func (l *line) matches(p packet) bool {
	switch {
	case p.dst.Is4() && !l.v4, !p.dst.Is4() && !l.v6:
		return false
	case l.proto != 0 && l.proto != p.proto:
		return false
	case l.src.IsValid() && !l.src.Contains(p.src), l.dst.IsValid() && !l.dst.Contains(p.dst):
		return false
	}
	return l.proto == 0 || l.sports[0] <= p.sport && p.sport <= l.sports[1] && l.dports[0] <= p.dport && p.dport <= l.dports[1]
}

func readLine(r *acl.ACL_Rule) line {
	l := line{permit: r.Action != acl.ACL_Rule_DENY, reflect: r.Action == acl.ACL_Rule_REFLECT, v4: true, v6: true}
	l.sports, l.dports = [2]uint16{0, 65535}, [2]uint16{0, 65535}
	ip := r.IpRule
	l.src, l.dst = readPrefix(ip.GetIp().GetSourceNetwork()), readPrefix(ip.GetIp().GetDestinationNetwork())
	for _, p := range []netip.Prefix{l.src, l.dst} {
		if p.IsValid() {
			l.v4, l.v6 = p.Addr().Is4(), p.Addr().Is6()
		}
	}
	l.proto = policy.Protocol(ip.GetIp().GetProtocol())
	rng := func(p *acl.ACL_Rule_IpRule_PortRange) [2]uint16 {
		return [2]uint16{uint16(p.GetLowerPort()), uint16(p.GetUpperPort())}
	}
	switch {
	case ip.Tcp != nil:
		l.proto, l.sports, l.dports = policy.TCP, rng(ip.Tcp.SourcePortRange), rng(ip.Tcp.DestinationPortRange)
	case ip.Udp != nil:
		l.proto, l.sports, l.dports = policy.UDP, rng(ip.Udp.SourcePortRange), rng(ip.Udp.DestinationPortRange)
	case ip.Icmp != nil:
		l.proto, l.v6 = policy.ICMP, false
		if ip.Icmp.Icmpv6 {
			l.proto, l.v4, l.v6 = policy.ICMPv6, false, true
		}
		icmp := func(p *acl.ACL_Rule_IpRule_Icmp_Range) [2]uint16 {
			return [2]uint16{uint16(p.GetFirst()), uint16(p.GetLast())}
		}
		l.sports, l.dports = icmp(ip.Icmp.IcmpTypeRange), icmp(ip.Icmp.IcmpCodeRange)
	}
	return l
}

func readPorts(rules []*contivacl.SCTPPorts_Rule) (out []line) {
	rng := func(p *contivacl.SCTPPorts_Ports) [2]uint16 {
		if p == nil {
			return [2]uint16{0, 65535}
		}
		return [2]uint16{uint16(p.Lower), uint16(p.Upper)}
	}
	for _, r := range rules {
		l := line{permit: r.Permit, src: readPrefix(r.SourceNetwork), dst: readPrefix(r.DestinationNetwork), proto: policy.SCTP, sports: rng(r.Source), dports: rng(r.Destination)}
		l.v4, l.v6 = l.src.Addr().Is4(), l.src.Addr().Is6()
		out = append(out, l)
	}
	return out
}

func readPrefix(text string) netip.Prefix {
	if text == "" {
		return netip.Prefix{}
	}
	return netip.MustParsePrefix(text)
}

// lists is what a renderer wants in one VPP: access lists by name, and those of each interface, in order.
type lists struct {
	acls       map[string][]line
	interfaces map[string]*[2][][]line // input and output
	ports      map[string]*[2][]line   // of SCTP associations that begin, beside them
	broken     []string
	untracked  map[string][2]bool // interfaces that deny SCTP in a direction, because policies restrict the other and answers cannot be recognised
	big        bool               // some policies name more ports of SCTP than VPP's classifier holds
}

func readLists(s *sink) *lists {
	owners := s.owners
	l := &lists{big: len(s.big) > 0, acls: map[string][]line{}, interfaces: map[string]*[2][][]line{}, ports: map[string]*[2][]line{}, untracked: map[string][2]bool{}}
	var ordered []*contivacl.InterfaceACLs
	for _, values := range owners {
		for key, v := range values {
			switch v := v.(type) {
			case *acl.ACL:
				lines := make([]line, 0, len(v.Rules))
				for _, r := range v.Rules {
					lines = append(lines, readLine(r))
				}
				l.acls[v.Name] = lines
				if _, apart := kv.NeedsSCTPPorts(v.Name); len(v.Name) > 40 && !apart {
					l.broken = append(l.broken, "long name "+v.Name)
				}
			case *contivacl.InterfaceACLs:
				ordered = append(ordered, v)
			case *contivacl.SCTPPorts:
				l.ports[v.Interface] = &[2][]line{readPorts(v.Input), readPorts(v.Output)}
				if _, err := classifier.Compile(v); err != nil {
					l.broken = append(l.broken, fmt.Sprintf("value %s: %v", key, err))
				}
			default:
				l.broken = append(l.broken, fmt.Sprintf("value %s is a %T", key, v))
			}
		}
	}
	for _, i := range ordered {
		if len(i.Input)+len(i.Output) > 255 {
			l.broken = append(l.broken, fmt.Sprintf("%s has %d lists", i.Interface, len(i.Input)+len(i.Output)))
		}
		untracked := func(name string) bool { return strings.HasPrefix(name, "no-sctp") }
		l.untracked[i.Interface] = [2]bool{slices.ContainsFunc(i.Input, untracked), slices.ContainsFunc(i.Output, untracked)}
		l.interfaces[i.Interface] = &[2][][]line{l.resolve(i.Interface, i.Input), l.resolve(i.Interface, i.Output)}
	}
	return l
}

// resolve looks up the lists of one direction of an interface.
func (l *lists) resolve(iface string, names []string) [][]line {
	var out [][]line
	seen := map[string]bool{}
	for _, name := range names {
		lines, known := l.acls[name]
		if seen[name] || !known {
			l.broken = append(l.broken, fmt.Sprintf("%s has %s twice, or there is none", iface, name))
		}
		seen[name] = true
		out = append(out, lines)
	}
	return out
}

// check holds a packet against the lists of one direction of an interface. No list at all lets everything through.
func (l *lists) check(iface string, output bool, p packet) (permit, reflect bool) {
	return l.checkLists(iface, output, p, l.begins(iface, output, p))
}

// begins holds a packet that begins an association of SCTP against what decides about its ports. No rule at all lets everything begin.
func (l *lists) begins(iface string, output bool, p packet) bool {
	rules := l.ports[iface]
	if !p.begins || rules == nil || len(rules[index(output)]) == 0 {
		return true
	}
	for i := range rules[index(output)] {
		if r := &rules[index(output)][i]; r.matches(p) {
			return r.permit
		}
	}
	return false
}

func index(output bool) int {
	if output {
		return 1
	}
	return 0
}

func (l *lists) checkLists(iface string, output bool, p packet, begins bool) (permit, reflect bool) {
	both := l.interfaces[iface]
	if both == nil {
		return true, false
	}
	ordered := both[0]
	if output {
		ordered = both[1]
	}
	for _, lines := range ordered {
		for k := range lines {
			if r := &lines[k]; r.matches(p) {
				return r.permit && begins, r.reflect
			}
		}
	}
	return len(ordered) == 0, false
}

// sink collects what a renderer wants.
type sink struct {
	owners map[string]map[string]proto.Message
	// big are the owners whose policies name more ports of SCTP than VPP's classifier holds: then none is allowed.
	big map[string]bool
}

func (s *sink) Set(owner string, values map[string]proto.Message, notes []model.Note) {
	if s.big == nil {
		s.big = map[string]bool{}
	}
	delete(s.big, owner)
	if slices.ContainsFunc(notes, func(n model.Note) bool { return strings.Contains(n.Reason, "too many rules for SCTP") }) {
		s.big[owner] = true
	}
	if values == nil {
		delete(s.owners, owner)
		return
	}
	s.owners[owner] = values
}

// The interfaces of every node but the pods'.
const (
	uplink  = "uplink"
	overlay = "overlay"
	hostIf  = "host"
)

// network is the cluster as packets see it: where addresses are, and the lists of every node.
type network struct {
	pods  map[netip.Addr]string // → interface
	at    map[netip.Addr]string // address of a pod or node → node
	first map[string]netip.Addr // node → its IPv4 address: what masquerades
	lists map[string]*lists
}

// door is the interface of a node a packet takes to, or comes from, an address.
func (n *network) door(node string, a netip.Addr) string {
	switch at := n.at[a]; {
	case at == "":
		return uplink
	case at != node:
		return overlay
	case n.pods[a] != "":
		return n.pods[a]
	}
	return hostIf
}

// hook is a list that evaluated a packet on its path, and whether the session lets its answer pass.
type hook struct {
	node, iface string
	output      bool
	seen        packet
	session     bool
}

func (h hook) String() string {
	direction := "input"
	if h.output {
		direction = "output"
	}
	return fmt.Sprintf("%s of %s at %s", direction, h.iface, h.node)
}

// denial is where a flow, or its answer, ended.
type denial struct {
	hook
	answer bool
}

func (d *denial) String() string {
	switch {
	case d == nil:
		return ""
	case d.answer:
		return "the answer, at " + d.hook.String()
	}
	return d.hook.String()
}

// passes sends a flow, and then its answer. At the first hook it may look different: entering, by the interface in. Nil: both arrive.
func (n *network) passes(f *policy.Flow, in string, entering packet) *denial {
	p := packetOf(f)
	var hooks []hook
	node := f.Node
	for hop := 0; ; hop++ {
		out, leaving := n.door(node, f.Dst), p
		if out == uplink && p.src.Is4() && n.pods[p.src] != "" && entering.dst == p.dst {
			leaving.src = n.first[node] // masquerading comes before the output hook, and leaves alone what was translated already
		}
		for _, h := range []hook{{node: node, iface: in, seen: entering}, {node: node, iface: out, output: true, seen: leaving}} {
			permit, reflect := n.lists[node].check(h.iface, h.output, h.seen)
			if !permit {
				return &denial{hook: h}
			}
			h.session = reflect
			hooks = append(hooks, h)
		}
		if out != overlay || hop > 0 {
			return n.answered(hooks)
		}
		node, in, entering = n.at[f.Dst], overlay, p
	}
}

// answered sends the answer back through the same interfaces.
func (n *network) answered(hooks []hook) *denial {
	for _, h := range slices.Backward(hooks) {
		a, known := h.seen.answer()
		if !known || h.session {
			continue
		}
		h.output = !h.output
		if permit, _ := n.lists[h.node].check(h.iface, h.output, a); !permit {
			return &denial{hook: h, answer: true}
		}
	}
	return nil
}
