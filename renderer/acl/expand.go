package acl

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// atom is one line of an ACL: its verb and its match. A clause that allows becomes one line or several (see law). Both prefixes are of one family.
// Protocol 0 is any; spans are ports, for ICMP type and code, and for other protocols everything.
type atom struct {
	verb
	src, dst     netip.Prefix
	proto        uint8
	syn          bool // TCP only: packets that begin a connection
	sport, dport span
}

// clause is a set of matches that must all hold, with a verb. A pass becomes part of the following clauses: they also have the
// match of the passing rule.
type clause struct {
	verb    // allow or deny
	matches []*match
	cause   *dataplane.Cause
}

// open reports whether every packet matches.
func (c *clause) open() bool {
	for _, m := range c.matches {
		if !m.open() {
			return false
		}
	}
	return true
}

func (c clause) equal(o clause) bool {
	return c.verb == o.verb && slices.Equal(c.matches, o.matches) && *c.cause == *o.cause
}

// peer returns the side of a packet that is not the endpoint's: the source of ingress.
func (m *match) peer(egress bool) *side {
	if egress {
		return &m.dst
	}
	return &m.src
}

// maxAtoms bounds the rules of one clause and family: as many as the default budget admits of a whole object, so that each policy within it is
// written. The driver treats a larger clause as unreadable.
const maxAtoms = 1 << 16

// expander expands clauses into atoms.
type expander struct {
	sets  map[string]*ipset
	bytes bool                                        // VPP compares IPv6 prefixes by whole bytes
	sctp  bool                                        // expand only SCTP, with its ports
	note  func(c *clause, format string, args ...any) // reports what cannot be expanded
	c     *clause
	f     family
	broad bool           // the clause grew too large
	parts *[]part        // reused memory for the parts of a segment
	most  int            // most rules of a segment
	peers []netip.Prefix // addresses whose sender is unknown: see peers.go; sorted
}

// expand appends the atoms of a clause for a family, limited to packets whose source and destination are in from and to.
func (x *expander) expand(out []atom, c *clause, f family, from, to []netip.Prefix) []atom {
	x.c, x.f, x.broad = c, f, false
	start := len(out)
	for _, m := range c.matches {
		if m.version == felix.IPVersion_IPV4 && f != v4 || m.version == felix.IPVersion_IPV6 && f != v6 {
			return out
		}
		if m.unknown && c.verb == allow || !m.src.reaches(f) || !m.dst.reaches(f) {
			return out
		}
	}
	for _, g := range x.groups() {
		src, dst := x.side(regionsOf(from), g.proto, srcOf), x.side(regionsOf(to), g.proto, dstOf)
		if len(src)*len(dst)*len(g.protos)*max(1, len(g.icmp)) > maxAtoms {
			x.broad = true
		}
		if src = x.known(src); x.broad {
			break
		}
		out = g.atoms(out, c.verb, src, dst)
	}
	if !x.broad && (!x.bytes || f == v4 || widened(out[start:]) <= maxAtoms) {
		return x.widen(out, start)
	}
	x.note(c, "is too big to be written out")
	return x.instead(out[:start], from, to)
}

// instead returns the replacement of a clause that cannot be expanded: nothing, or everything if it denies.
func (x *expander) instead(out []atom, from, to []netip.Prefix) []atom {
	if x.c.verb == allow {
		return out
	}
	return group{protos: []uint8{0}}.atoms(out, x.c.verb, regionsOf(from), regionsOf(to))
}

// reaches is a quick check whether addresses of a family can match.
func (s *side) reaches(f family) bool {
	return s.nets == nil || slices.ContainsFunc(s.nets, func(n netip.Prefix) bool { return familyOf(n.Addr()) == f })
}

func regionsOf(nets []netip.Prefix) []region {
	out := make([]region, len(nets))
	for i, n := range nets {
		out[i] = region{n, allPorts}
	}
	return out
}

func srcOf(m *match) *side { return &m.src }
func dstOf(m *match) *side { return &m.dst }

// side returns the regions that one side of the clause matches, for packets of a protocol that has ports (0: a protocol without).
func (x *expander) side(r []region, proto uint8, of func(*match) *side) []region {
	for _, m := range x.c.matches {
		s := of(m)
		if s.open() || len(r) == 0 {
			continue
		}
		if s.nets != nil {
			r = within(r, ofFamily(s.nets, x.f))
		}
		for _, id := range s.sets {
			r = x.set(r, id, within)
		}
		if s.notNets != nil {
			r = outside(r, ofFamily(s.notNets, x.f))
		}
		for _, id := range s.notSets {
			r = x.set(r, id, outside)
		}
		if !s.anyPort() {
			r = x.ports(r, s, proto)
		}
		if len(r) > maxAtoms {
			x.broad = true
			return nil
		}
	}
	return r
}

// set intersects regions with a set of prefixes. An unknown set leaves nothing to allow and everything to deny.
func (x *expander) set(r []region, id string, cut func([]region, prefixes) []region) []region {
	s := x.sets[id]
	if s != nil && !s.ported && len(s.bad) == 0 {
		return cut(r, &s.nets[x.f])
	}
	x.missing(id, s)
	if x.c.verb == allow {
		return nil
	}
	return r
}

// endpoints returns the members of a set with ports; false if they are not known.
func (x *expander) endpoints(id string) ([]endpoint, bool) {
	s := x.sets[id]
	if s != nil && s.ported && len(s.bad) == 0 {
		return s.endpoints(), true
	}
	x.missing(id, s)
	return nil, false
}

func (x *expander) missing(id string, s *ipset) {
	switch {
	case s == nil:
		x.note(x.c, "refers to set %s, which is not known", id)
	case len(s.bad) > 0:
		x.note(x.c, "refers to set %s, which has a member that cannot be read", id)
	default:
		x.note(x.c, "refers to set %s, which is of another type", id)
	}
}

// ports intersects regions with the ports of a side, for packets of a protocol.
func (x *expander) ports(r []region, s *side, proto uint8) []region {
	if proto == protoSCTP && !x.sctp || proto == protoUDPLite { // ports that VPP does not compare
		if x.c.verb == allow {
			return nil
		}
		return r
	}
	if s.ports != nil || s.named != nil {
		var named []region
		for _, id := range s.named {
			eps, ok := x.endpoints(id)
			switch {
			case ok:
				named = append(named, at(r, eps, proto)...)
			case x.c.verb == deny:
				return r
			}
		}
		r = append(onPorts(r, s.ports), named...)
	}
	for _, id := range s.ipPorts {
		if eps, ok := x.endpoints(id); ok {
			r = at(r, eps, proto)
		} else if x.c.verb == allow {
			return nil
		}
	}
	if proto != 0 {
		r = offPorts(r, s.notPorts)
	}
	for _, id := range s.notNamed {
		if eps, ok := x.endpoints(id); ok {
			r = notAt(r, eps, proto)
		} else if x.c.verb == allow {
			return nil
		}
	}
	return r
}

// group is a set of protocols with equal atoms.
type group struct {
	proto  uint8     // the one whose ports are compared; 0: none
	protos []uint8   // 0: any
	icmp   [][2]span // type and code; nil: everything
}

func (g group) atoms(out []atom, v verb, src, dst []region) []atom {
	for _, proto := range g.protos {
		for _, s := range src {
			for _, d := range dst {
				a := atom{verb: v, src: s.net, dst: d.net, proto: proto, sport: s.ports, dport: d.ports}
				if g.icmp == nil {
					out = append(out, a)
					continue
				}
				for _, box := range g.icmp {
					a.sport, a.dport = box[0], box[1]
					out = append(out, a)
				}
			}
		}
	}
	return out
}

// groups returns the protocols that the clause matches, in groups.
func (x *expander) groups() []group {
	protos := protoSet{}
	ported, typed := false, false
	for _, m := range x.c.matches {
		protos.and(m)
		if !m.src.anyPort() || !m.dst.anyPort() {
			ported = true
			if m.proto == protoUDPLite { // the filter decides about ports of SCTP: see filter
				x.note(x.c, "asks for ports of a protocol whose ports VPP does not look at")
			}
		}
		if m.icmp != nil {
			protos.only(x.f.icmp())
		}
		typed = typed || m.icmp != nil || m.notICMP != nil
	}
	if x.sctp {
		protos.only(protoSCTP)
	}
	if protos.all() && !ported && !typed {
		return []group{{protos: []uint8{0}}}
	}
	var out []group
	plain := group{}
	for p := protos.first(); p < 256; p++ {
		proto := uint8(p)
		switch {
		case !protos.has(proto):
			if protos.one {
				p = 256
			}
		case typed && proto == x.f.icmp():
			out = append(out, group{protos: []uint8{proto}, icmp: x.boxes()})
		case ported && portsOf(proto):
			out = append(out, group{proto: proto, protos: []uint8{proto}})
		default:
			plain.protos = append(plain.protos, proto)
		}
	}
	if len(plain.protos) > 0 {
		out = append(out, plain)
	}
	return out
}

// portsOf reports whether packets of a protocol have ports.
func portsOf(proto uint8) bool {
	return proto == protoTCP || proto == protoUDP || proto == protoSCTP || proto == protoUDPLite
}

// boxes returns the ICMP types and codes that the clause matches.
func (x *expander) boxes() [][2]span {
	out := [][2]span{{{0, 255}, {0, 255}}}
	for _, m := range x.c.matches {
		if m.icmp != nil {
			out = boxesIn(out, m.icmp.box())
		}
		if m.notICMP != nil {
			out = boxesOut(out, m.notICMP.box())
		}
	}
	if out == nil {
		return [][2]span{}
	}
	return out
}

func (i *icmp) box() [2]span {
	b := [2]span{{uint16(i.typ), uint16(i.typ)}, {0, 255}}
	if i.code >= 0 {
		b[1] = span{uint16(i.code), uint16(i.code)}
	}
	return b
}

func boxesIn(boxes [][2]span, by [2]span) (out [][2]span) {
	for _, b := range boxes {
		t, ok := b[0].and(by[0])
		c, also := b[1].and(by[1])
		if ok && also {
			out = append(out, [2]span{t, c})
		}
	}
	return out
}

func boxesOut(boxes [][2]span, by [2]span) (out [][2]span) {
	for _, b := range boxes {
		for _, t := range b[0].minus(by[0]) {
			out = append(out, [2]span{t, b[1]})
		}
		if t, ok := b[0].and(by[0]); ok {
			for _, c := range b[1].minus(by[1]) {
				out = append(out, [2]span{t, c})
			}
		}
	}
	return out
}

// protoSet is a set of protocols 1 to 255; the zero value is all of them.
type protoSet struct {
	out  [4]uint64
	one  bool // at most one
	that uint8
}

// first returns the first candidate: the only protocol, if it is known.
func (p *protoSet) first() int {
	if p.one {
		return int(p.that)
	}
	return 1
}

func (p *protoSet) has(proto uint8) bool { return p.out[proto/64]>>(proto%64)&1 == 0 }

func (p *protoSet) drop(proto uint8) { p.out[proto/64] |= 1 << (proto % 64) }

func (p *protoSet) all() bool { return p.out == [4]uint64{} }

func (p *protoSet) only(proto uint8) {
	was := p.has(proto)
	p.one, p.that = true, proto
	p.out = [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	if was {
		p.out[proto/64] &^= 1 << (proto % 64)
	}
}

// keep intersects the set with these protocols.
func (p *protoSet) keep(protos ...uint8) {
	mask := protoSet{out: [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}}
	for _, proto := range protos {
		mask.out[proto/64] &^= 1 << (proto % 64)
	}
	for i := range p.out {
		p.out[i] |= mask.out[i]
	}
}

func (p *protoSet) and(m *match) {
	if m.proto > 0 {
		p.only(uint8(m.proto))
	}
	if m.notProto > 0 {
		p.drop(uint8(m.notProto))
	}
	if m.src.ports != nil || m.src.named != nil || m.dst.ports != nil || m.dst.named != nil || m.dst.ipPorts != nil || m.src.ipPorts != nil {
		p.keep(protoTCP, protoUDP, protoSCTP, protoUDPLite)
	}
}

// widened returns the number of atoms after prefixes are extended to whole bytes.
func widened(list []atom) int {
	n := 0
	for _, a := range list {
		n += budget.WholeBytes(a.src.Bits()) * budget.WholeBytes(a.dst.Bits())
	}
	return n
}

// widen replaces the IPv6 prefixes of list[start:] that end within a byte by longer ones, if VPP cannot compare such prefixes.
func (x *expander) widen(list []atom, start int) []atom {
	odd := func(p netip.Prefix) bool { return p.Bits()%8 != 0 && p.Addr().Is6() }
	if !x.bytes || !slices.ContainsFunc(list[start:], func(a atom) bool { return odd(a.src) || odd(a.dst) }) {
		return list
	}
	out := slices.Clone(list[:start])
	for _, a := range list[start:] {
		dsts := wholeBytes(a.dst)
		for _, src := range wholeBytes(a.src) {
			for _, dst := range dsts {
				a.src, a.dst = src, dst
				out = append(out, a)
			}
		}
	}
	return out
}

// wholeBytes returns the same addresses as IPv6 prefixes that end with a byte.
func wholeBytes(p netip.Prefix) []netip.Prefix {
	if p.Bits()%8 == 0 || p.Addr().Is4() {
		return []netip.Prefix{p}
	}
	bits := (p.Bits() + 7) / 8 * 8
	out := make([]netip.Prefix, budget.WholeBytes(p.Bits()))
	for i := range out {
		raw := p.Addr().As16()
		raw[bits/8-1] |= byte(i)
		out[i] = netip.PrefixFrom(netip.AddrFrom16(raw), bits)
	}
	return out
}
