package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
)

// family is an address family; it indexes arrays.
type family uint8

const (
	v4 family = iota
	v6
)

var families = [...]family{v4, v6}

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return v4
	}
	return v6
}

// all is the prefix of everything.
func (f family) all() netip.Prefix {
	if f == v4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// icmp returns the family's ICMP.
func (f family) icmp() uint8 {
	if f == v4 {
		return protoICMP
	}
	return protoICMP6
}

const (
	protoICMP    = 1
	protoTCP     = 6
	protoUDP     = 17
	protoICMP6   = 58
	protoSCTP    = 132
	protoUDPLite = 136
)

// verb is the action of a rule.
type verb uint8

const (
	allow verb = iota
	deny
	pass
	skip    // log: the next rule follows
	admit   // allow, and make no session
	reflect // allow, and make a session: a law turns allow into it (see law)
)

// String is "allow", "deny" or "pass".
func (v verb) String() string {
	return [...]string{"allow", "deny", "pass", "log", "allow", "allow"}[v]
}

// span is an inclusive range of ports, or of ICMP types or codes.
type span struct{ lo, hi uint16 }

var allPorts = span{0, 65535}

func (s span) and(o span) (span, bool) {
	r := span{max(s.lo, o.lo), min(s.hi, o.hi)}
	return r, r.lo <= r.hi
}

// minus returns the part of s outside o: up to two spans.
func (s span) minus(o span) []span {
	if _, ok := s.and(o); !ok {
		return []span{s}
	}
	var out []span
	if s.lo < o.lo {
		out = append(out, span{s.lo, o.lo - 1})
	}
	if o.hi < s.hi {
		out = append(out, span{o.hi + 1, s.hi})
	}
	return out
}

// side is the match of a rule for source or destination. Every field that is set must hold.
type side struct {
	nets, notNets   []netip.Prefix // masked; any of nets (nil: any address), none of notNets
	sets, notSets   []string       // in each of sets, in none of notSets
	ports, notPorts []span
	named, notNamed []string // sets of address and port: alternatives to ports
	ipPorts         []string // sets of address and port: in each
}

func (s *side) open() bool { return s.anyPort() && s.anyAddr() }

func (s *side) anyPort() bool {
	return s.ports == nil && s.notPorts == nil && s.named == nil && s.notNamed == nil && s.ipPorts == nil
}

func (s *side) anyAddr() bool {
	return s.nets == nil && s.notNets == nil && s.sets == nil && s.notSets == nil
}

// icmp is a type and, from 0 on, a code.
type icmp struct{ typ, code int32 }

// match is the match of a rule.
type match struct {
	version  felix.IPVersion
	proto    int // -1: any
	notProto int // -1: none
	icmp     *icmp
	notICMP  *icmp
	src, dst side
	unknown  bool  // a part is unknown: an allowing rule does not match, a denying rule does
	cuts     *cuts // made when needed
	asksFrom bool  // the rule names source addresses, in any form
}

// open reports whether every packet matches.
func (m *match) open() bool {
	return m.version == felix.IPVersion_ANY && m.proto < 0 && m.notProto < 0 && m.icmp == nil && m.notICMP == nil &&
		m.src.open() && m.dst.open() && !m.unknown
}

// same reports whether two matches are equal.
func (m *match) same(o *match) bool {
	return m == o || m.version == o.version && m.proto == o.proto && m.notProto == o.notProto && m.icmp.same(o.icmp) && m.notICMP.same(o.notICMP) &&
		m.unknown == o.unknown && m.src.same(&o.src) && m.dst.same(&o.dst)
}

func (i *icmp) same(o *icmp) bool {
	if i == nil || o == nil {
		return i == o
	}
	return *i == *o
}

func (s *side) same(o *side) bool {
	return slices.Equal(s.nets, o.nets) && slices.Equal(s.notNets, o.notNets) && slices.Equal(s.sets, o.sets) && slices.Equal(s.notSets, o.notSets) &&
		slices.Equal(s.ports, o.ports) && slices.Equal(s.notPorts, o.notPorts) && slices.Equal(s.named, o.named) &&
		slices.Equal(s.notNamed, o.notNamed) && slices.Equal(s.ipPorts, o.ipPorts)
}

// eachSet calls f with the name of each set that the match depends on.
func (m *match) eachSet(f func(id string)) {
	for _, s := range [...]*side{&m.src, &m.dst} {
		for _, list := range [...][]string{s.sets, s.notSets, s.named, s.notNamed, s.ipPorts} {
			for _, id := range list {
				f(id)
			}
		}
	}
}

// parser parses rules, one after the other into the same memory.
type parser struct {
	m          match // of the last rule
	nets       []netip.Prefix
	ports      []span
	unreadable bool // the rule cannot be used
	problems   []string
}

// keep returns a copy of the match of the last rule.
func (p *parser) keep() *match {
	m := p.m
	for _, s := range [...]*side{&m.src, &m.dst} {
		s.nets, s.notNets = slices.Clone(s.nets), slices.Clone(s.notNets)
		s.ports, s.notPorts = slices.Clone(s.ports), slices.Clone(s.notPorts)
	}
	return &m
}

// parse parses a rule into p.m. A problem is one sentence; the rule then allows nothing, or denies everything if it is not an allow.
func (p *parser) parse(r *felix.Rule) (v verb, problems []string) {
	p.m = match{version: r.GetIpVersion(), proto: -1, notProto: -1}
	p.nets, p.ports, p.unreadable, p.problems = p.nets[:0], p.ports[:0], false, nil
	switch r.GetAction() {
	case "allow", "":
		v = allow
	case "deny":
		v = deny
	case "pass", "next-tier":
		v = pass
	case "log":
		v = skip
	default:
		v = deny
		p.bad("action %q is not known", r.GetAction())
	}
	if v := p.m.version; v != felix.IPVersion_ANY && v != felix.IPVersion_IPV4 && v != felix.IPVersion_IPV6 {
		p.bad("IP version %d is not known", v)
	}
	p.m.proto, p.m.notProto = p.protocol(r.GetProtocol()), p.protocol(r.GetNotProtocol())
	p.icmps(r)
	p.side(&p.m.src, r.GetSrcNet(), r.GetNotSrcNet(), r.GetSrcPorts(), r.GetNotSrcPorts())
	p.side(&p.m.dst, r.GetDstNet(), r.GetNotDstNet(), r.GetDstPorts(), r.GetNotDstPorts())
	s, d := &p.m.src, &p.m.dst
	s.sets, s.notSets, s.named, s.notNamed = r.GetSrcIpSetIds(), r.GetNotSrcIpSetIds(), r.GetSrcNamedPortIpSetIds(), r.GetNotSrcNamedPortIpSetIds()
	d.sets, d.notSets, d.named, d.notNamed = r.GetDstIpSetIds(), r.GetNotDstIpSetIds(), r.GetDstNamedPortIpSetIds(), r.GetNotDstNamedPortIpSetIds()
	d.ipPorts = r.GetDstIpPortSetIds()
	p.m.asksFrom = !s.anyAddr()
	if r.GetHttpMatch() != nil {
		p.m.unknown = true
		p.problems = append(p.problems, "HTTP cannot be matched")
	}
	if len(r.ProtoReflect().GetUnknown()) > 0 { // of a later Felix
		p.m.unknown = true
		p.problems = append(p.problems, "a part of it is not known")
	}
	switch {
	case v == skip:
		return v, nil
	case !p.unreadable:
		return v, p.problems
	case v == allow:
		return skip, p.problems
	}
	p.m = match{proto: -1, notProto: -1}
	return deny, p.problems
}

func (p *parser) bad(format string, args ...any) {
	p.unreadable = true
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// protocol returns a number, -1 for none. Number 0 cannot be matched: it is VPP's "any".
func (p *parser) protocol(proto *felix.Protocol) int {
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
			return protoTCP
		case "udp":
			return protoUDP
		case "icmp":
			return protoICMP
		case "icmpv6":
			return protoICMP6
		case "sctp":
			return protoSCTP
		case "udplite":
			return protoUDPLite
		}
		p.bad("protocol %q is not known", v.Name)
	default:
		if proto != nil {
			p.bad("protocol is empty")
		}
	}
	return -1
}

func (p *parser) icmps(r *felix.Rule) {
	switch v := r.GetIcmp().(type) {
	case *felix.Rule_IcmpType:
		p.m.icmp = p.icmp(v.IcmpType, -1)
	case *felix.Rule_IcmpTypeCode:
		p.m.icmp = p.icmp(v.IcmpTypeCode.GetType(), v.IcmpTypeCode.GetCode())
	}
	switch v := r.GetNotIcmp().(type) {
	case *felix.Rule_NotIcmpType:
		p.m.notICMP = p.icmp(v.NotIcmpType, -1)
	case *felix.Rule_NotIcmpTypeCode:
		p.m.notICMP = p.icmp(v.NotIcmpTypeCode.GetType(), v.NotIcmpTypeCode.GetCode())
	}
}

func (p *parser) icmp(typ, code int32) *icmp {
	if typ < 0 || typ > 255 || code < -1 || code > 255 {
		p.bad("ICMP type %d code %d is out of range", typ, code)
	}
	return &icmp{typ, code}
}

func (p *parser) side(s *side, nets, notNets []string, ports, notPorts []*felix.PortRange) {
	s.nets, s.notNets = p.readNets(nets), p.readNets(notNets)
	s.ports, s.notPorts = p.readPorts(ports), p.readPorts(notPorts)
}

func (p *parser) readNets(list []string) []netip.Prefix {
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

func (p *parser) readPorts(list []*felix.PortRange) []span {
	if len(list) == 0 {
		return nil
	}
	start := len(p.ports)
	for _, r := range list {
		if r.GetFirst() < 0 || r.GetLast() > 65535 || r.GetFirst() > r.GetLast() {
			p.bad("%d to %d is no range of ports", r.GetFirst(), r.GetLast())
			continue
		}
		p.ports = append(p.ports, span{uint16(r.GetFirst()), uint16(r.GetLast())})
	}
	out := p.ports[start:len(p.ports):len(p.ports)]
	slices.SortFunc(out, func(a, b span) int { return int(a.lo) - int(b.lo) })
	return joined(out)
}

// joined merges spans, sorted by their beginning, that overlap or touch.
func joined(list []span) []span {
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && int(s.lo) <= int(out[n-1].hi)+1 {
			out[n-1].hi = max(out[n-1].hi, s.hi)
			continue
		}
		out = append(out, s)
	}
	return out
}
