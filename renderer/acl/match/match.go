package match

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
)

// Family is an address family; it indexes arrays.
type Family uint8

// The families.
const (
	V4 Family = iota
	V6
)

// Families has both.
var Families = [...]Family{V4, V6}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return V4
	}
	return V6
}

// All is the prefix of everything.
func (f Family) All() netip.Prefix {
	if f == V4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// ICMP returns the family's ICMP.
func (f Family) ICMP() uint8 {
	if f == V4 {
		return ICMP
	}
	return ICMP6
}

// InOut is the place of a direction in arrays: [0] in, [1] out.
func InOut(egress bool) int {
	if egress {
		return 1
	}
	return 0
}

// Protocols.
const (
	ICMP    = 1
	TCP     = 6
	UDP     = 17
	ICMP6   = 58
	SCTP    = 132
	UDPLite = 136
)

// Verb is the action of a rule.
type Verb uint8

// The actions.
const (
	Allow Verb = iota
	Deny
	Pass
	Skip    // log: the next rule follows
	Admit   // allow, and make no session
	Reflect // allow, and make a session: the law of an interface turns Allow into it
)

// String is "allow", "deny" or "pass".
func (v Verb) String() string {
	return [...]string{"allow", "deny", "pass", "log", "allow", "allow"}[v]
}

// Span is an inclusive range of ports, or of ICMP types or codes.
type Span struct{ Lo, Hi uint16 }

// AllPorts is every port.
var AllPorts = Span{0, 65535}

// And returns the common part of two spans; false: they have none.
func (s Span) And(o Span) (Span, bool) {
	r := Span{max(s.Lo, o.Lo), min(s.Hi, o.Hi)}
	return r, r.Lo <= r.Hi
}

// Minus returns the part of s outside o: up to two spans.
func (s Span) Minus(o Span) []Span {
	if _, ok := s.And(o); !ok {
		return []Span{s}
	}
	var out []Span
	if s.Lo < o.Lo {
		out = append(out, Span{s.Lo, o.Lo - 1})
	}
	if o.Hi < s.Hi {
		out = append(out, Span{o.Hi + 1, s.Hi})
	}
	return out
}

// Side is the match of a rule for source or destination. Every field that is set must hold.
type Side struct {
	Nets, NotNets   []netip.Prefix // masked; any of nets (nil: any address), none of NotNets
	Sets, NotSets   []string       // in each of sets, in none of NotSets
	Ports, NotPorts []Span
	Named, NotNamed []string // sets of address and port: alternatives to ports
	IPPorts         []string // sets of address and port: in each
}

// Open reports whether every address and port matches.
func (s *Side) Open() bool { return s.anyPort() && s.AnyAddr() }

// anyPort reports whether all ports match.
func (s *Side) anyPort() bool {
	return s.Ports == nil && s.NotPorts == nil && s.Named == nil && s.NotNamed == nil && s.IPPorts == nil
}

// AnyAddr reports whether all addresses match.
func (s *Side) AnyAddr() bool {
	return s.Nets == nil && s.NotNets == nil && s.Sets == nil && s.NotSets == nil
}

// AnyHost is AnyAddr for sets of addresses and ports as well.
func (s *Side) AnyHost() bool {
	return s.AnyAddr() && s.Named == nil && s.NotNamed == nil && s.IPPorts == nil
}

// ICMPKind is a type and, from 0 on, a code.
type ICMPKind struct{ typ, code int32 }

// Match is the match of a rule.
type Match struct {
	Version      felix.IPVersion
	Proto        int // -1: any
	NotProto     int // -1: none
	ICMP         *ICMPKind
	NotICMP      *ICMPKind
	Src, Dst     Side
	unknown      bool  // a part is unknown: an allowing rule does not match, a denying rule does
	cuts         *cuts // made when needed
	NamesSources bool  // the rule names source addresses, in any form
}

// Open reports whether every packet matches.
func (m *Match) Open() bool {
	return m.Version == felix.IPVersion_ANY && m.Proto < 0 && m.NotProto < 0 && m.ICMP == nil && m.NotICMP == nil &&
		m.Src.Open() && m.Dst.Open() && !m.unknown
}

// Same reports whether two matches are equal.
func (m *Match) Same(o *Match) bool {
	return m == o || m.Version == o.Version && m.Proto == o.Proto && m.NotProto == o.NotProto && m.ICMP.sameAs(o.ICMP) && m.NotICMP.sameAs(o.NotICMP) &&
		m.unknown == o.unknown && m.Src.Same(&o.Src) && m.Dst.Same(&o.Dst)
}

func (i *ICMPKind) sameAs(o *ICMPKind) bool {
	if i == nil || o == nil {
		return i == o
	}
	return *i == *o
}

// Same reports whether two sides are equal.
func (s *Side) Same(o *Side) bool {
	return slices.Equal(s.Nets, o.Nets) && slices.Equal(s.NotNets, o.NotNets) && slices.Equal(s.Sets, o.Sets) && slices.Equal(s.NotSets, o.NotSets) &&
		slices.Equal(s.Ports, o.Ports) && slices.Equal(s.NotPorts, o.NotPorts) && slices.Equal(s.Named, o.Named) &&
		slices.Equal(s.NotNamed, o.NotNamed) && slices.Equal(s.IPPorts, o.IPPorts)
}

// EachSet calls f with the name of each set that the match depends on.
func (m *Match) EachSet(f func(id string)) {
	for _, s := range [...]*Side{&m.Src, &m.Dst} {
		for _, list := range [...][]string{s.Sets, s.NotSets, s.Named, s.NotNamed, s.IPPorts} {
			for _, id := range list {
				f(id)
			}
		}
	}
}

// Parser parses rules, one after the other into the same memory.
type Parser struct {
	Last       Match // of the last rule
	nets       []netip.Prefix
	ports      []Span
	unreadable bool // the rule cannot be used
	problems   []string
}

// Keep returns a copy of the match of the last rule.
func (p *Parser) Keep() *Match {
	m := p.Last
	for _, s := range [...]*Side{&m.Src, &m.Dst} {
		s.Nets, s.NotNets = slices.Clone(s.Nets), slices.Clone(s.NotNets)
		s.Ports, s.NotPorts = slices.Clone(s.Ports), slices.Clone(s.NotPorts)
	}
	return &m
}

// Parse parses a rule into Last. A problem is one sentence; the rule then allows nothing, or denies everything if it is not an allow.
func (p *Parser) Parse(r *felix.Rule) (v Verb, problems []string) {
	p.Last = Match{Version: r.GetIpVersion(), Proto: -1, NotProto: -1}
	p.nets, p.ports, p.unreadable, p.problems = p.nets[:0], p.ports[:0], false, nil
	switch r.GetAction() {
	case "allow", "":
		v = Allow
	case "deny":
		v = Deny
	case "pass", "next-tier":
		v = Pass
	case "log":
		v = Skip
	default:
		v = Deny
		p.bad("action %q is not known", r.GetAction())
	}
	if v := p.Last.Version; v != felix.IPVersion_ANY && v != felix.IPVersion_IPV4 && v != felix.IPVersion_IPV6 {
		p.bad("IP version %d is not known", v)
	}
	p.Last.Proto, p.Last.NotProto = p.protocol(r.GetProtocol()), p.protocol(r.GetNotProtocol())
	p.icmps(r)
	p.side(&p.Last.Src, r.GetSrcNet(), r.GetNotSrcNet(), r.GetSrcPorts(), r.GetNotSrcPorts())
	p.side(&p.Last.Dst, r.GetDstNet(), r.GetNotDstNet(), r.GetDstPorts(), r.GetNotDstPorts())
	s, d := &p.Last.Src, &p.Last.Dst
	s.Sets, s.NotSets, s.Named, s.NotNamed = r.GetSrcIpSetIds(), r.GetNotSrcIpSetIds(), eachOnce(r.GetSrcNamedPortIpSetIds()), eachOnce(r.GetNotSrcNamedPortIpSetIds())
	d.Sets, d.NotSets, d.Named, d.NotNamed = r.GetDstIpSetIds(), r.GetNotDstIpSetIds(), eachOnce(r.GetDstNamedPortIpSetIds()), eachOnce(r.GetNotDstNamedPortIpSetIds())
	d.IPPorts = r.GetDstIpPortSetIds()
	p.Last.NamesSources = !s.AnyAddr()
	if r.GetHttpMatch() != nil {
		p.Last.unknown = true
		p.problems = append(p.problems, "HTTP cannot be matched")
	}
	if len(r.ProtoReflect().GetUnknown()) > 0 { // of a later Felix
		p.Last.unknown = true
		p.problems = append(p.problems, "a part of it is not known")
	}
	switch {
	case v == Skip:
		return v, nil
	case !p.unreadable:
		return v, p.problems
	case v == Allow:
		return Skip, p.problems
	}
	p.Last = Match{Proto: -1, NotProto: -1}
	return Deny, p.problems
}

// eachOnce returns the sets of a rule's named ports in order, each once: Calico's datastore has the ports of a policy as the user wrote them, others have them sorted.
func eachOnce(sets []string) []string {
	if len(sets) < 2 {
		return sets
	}
	return slices.Compact(slices.Sorted(slices.Values(sets)))
}

func (p *Parser) bad(format string, args ...any) {
	p.unreadable = true
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// protocol returns a number, -1 for none. Number 0 cannot be matched: it is VPP's "any".
func (p *Parser) protocol(proto *felix.Protocol) int {
	switch v := proto.GetNumberOrName().(type) {
	case *felix.Protocol_Number:
		if v.Number < 1 || v.Number > 255 {
			p.bad("protocol %d cannot be matched", v.Number)
			return -1
		}
		return int(v.Number)
	case *felix.Protocol_Name:
		switch strings.ToLower(v.Name) {
		case "tcp":
			return TCP
		case "udp":
			return UDP
		case "icmp":
			return ICMP
		case "icmpv6":
			return ICMP6
		case "sctp":
			return SCTP
		case "udplite":
			return UDPLite
		}
		p.bad("protocol %q is not known", v.Name)
	default:
		if proto != nil {
			p.bad("protocol is empty")
		}
	}
	return -1
}

func (p *Parser) icmps(r *felix.Rule) {
	switch v := r.GetIcmp().(type) {
	case *felix.Rule_IcmpType:
		p.Last.ICMP = p.parseICMP(v.IcmpType, -1)
	case *felix.Rule_IcmpTypeCode:
		p.Last.ICMP = p.parseICMP(v.IcmpTypeCode.GetType(), v.IcmpTypeCode.GetCode())
	}
	switch v := r.GetNotIcmp().(type) {
	case *felix.Rule_NotIcmpType:
		p.Last.NotICMP = p.parseICMP(v.NotIcmpType, -1)
	case *felix.Rule_NotIcmpTypeCode:
		p.Last.NotICMP = p.parseICMP(v.NotIcmpTypeCode.GetType(), v.NotIcmpTypeCode.GetCode())
	}
}

func (p *Parser) parseICMP(typ, code int32) *ICMPKind {
	if typ < 0 || typ > 255 || code < -1 || code > 255 {
		p.bad("ICMP type %d code %d is out of range", typ, code)
	}
	return &ICMPKind{typ, code}
}

func (p *Parser) side(s *Side, nets, notNets []string, ports, notPorts []*felix.PortRange) {
	s.Nets, s.NotNets = p.readNets(nets), p.readNets(notNets)
	s.Ports, s.NotPorts = p.readPorts(ports), p.readPorts(notPorts)
}

func (p *Parser) readNets(list []string) []netip.Prefix {
	if len(list) == 0 {
		return nil
	}
	start := len(p.nets)
	for _, text := range list {
		n, err := netset.Parse(text)
		if err != nil {
			p.bad("%q is no prefix", text)
			continue
		}
		p.nets = append(p.nets, n)
	}
	out := p.nets[start:len(p.nets):len(p.nets)]
	slices.SortFunc(out, netset.Compare)
	return slices.Compact(out)
}

func (p *Parser) readPorts(list []*felix.PortRange) []Span {
	if len(list) == 0 {
		return nil
	}
	start := len(p.ports)
	for _, r := range list {
		if r.GetFirst() < 0 || r.GetLast() > 65535 || r.GetFirst() > r.GetLast() {
			p.bad("%d to %d is no range of ports", r.GetFirst(), r.GetLast())
			continue
		}
		p.ports = append(p.ports, Span{uint16(r.GetFirst()), uint16(r.GetLast())})
	}
	out := p.ports[start:len(p.ports):len(p.ports)]
	slices.SortFunc(out, func(a, b Span) int { return int(a.Lo) - int(b.Lo) })
	return JoinSpans(out)
}

// JoinSpans merges spans, sorted by their beginning, that overlap or touch.
func JoinSpans(list []Span) []Span {
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && int(s.Lo) <= int(out[n-1].Hi)+1 {
			out[n-1].Hi = max(out[n-1].Hi, s.Hi)
			continue
		}
		out = append(out, s)
	}
	return out
}

// Intricate reports whether a clause may treat two addresses differently although it names both.
func (s *Side) Intricate() bool {
	return s.NotNets != nil || s.NotSets != nil || s.Named != nil || s.NotNamed != nil || s.IPPorts != nil
}

// Reversed returns the match of the answers: the same pointer each time.
func (m *Match) Reversed() *Match {
	if m.cuts == nil {
		m.cuts = &cuts{}
	}
	if m.cuts.reversed == nil {
		w := *m
		w.cuts, w.NamesSources = nil, false
		w.Src, w.Dst = m.Dst, m.Src
		m.cuts.reversed = &w
	}
	return m.cuts.reversed
}

// Without returns the part of s outside others, which are sorted.
func (s Span) Without(others []Span) []Span {
	out := []Span{s}
	for _, o := range others {
		last := len(out) - 1
		if out = append(out[:last], out[last].Minus(o)...); len(out) == 0 {
			break
		}
	}
	return out
}

// SortSpans sorts spans by their beginning, in place.
func SortSpans(list []Span) []Span {
	slices.SortFunc(list, func(a, b Span) int { return int(a.Lo) - int(b.Lo) })
	return list
}

// reaches is a quick check whether addresses of a family can match.
func (s *Side) reaches(f Family) bool {
	return s.Nets == nil || slices.ContainsFunc(s.Nets, func(n netip.Prefix) bool { return FamilyOf(n.Addr()) == f })
}
