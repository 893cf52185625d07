package match

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Peer returns the side of a packet that is not the endpoint's: the source of ingress.
func (m *Match) Peer(egress bool) *Side {
	if egress {
		return &m.Dst
	}
	return &m.Src
}

// MaxAtoms bounds the rules of one clause and family: as many as the default budget admits of a whole object, so that each policy within it is
// written. The driver treats a larger clause as unreadable.
const MaxAtoms = 1 << 16

// Expander expands clauses into atoms.
type Expander struct {
	Sets       Sets
	WholeBytes bool                                        // VPP compares IPv6 prefixes by whole bytes
	SCTP       bool                                        // expand only SCTP, with its ports
	Note       func(c *Clause, format string, args ...any) // reports what cannot be expanded
	Coarse     bool                                        // a clause was too big since the caller set this to false: Instead replaces it
	c          *Clause
	f          Family
	broad      bool           // the clause grew too large
	Peers      []netip.Prefix // addresses whose sender is unknown: see peers.go; sorted
}

// Expand appends the atoms of a clause for a family, limited to packets whose source and destination are in from and to.
func (x *Expander) Expand(out []Atom, c *Clause, f Family, from, to []netip.Prefix) []Atom {
	x.c, x.f, x.broad = c, f, false
	start := len(out)
	for _, m := range c.Matches {
		if m.Version == felix.IPVersion_IPV4 && f != V4 || m.Version == felix.IPVersion_IPV6 && f != V6 {
			return out
		}
		if m.unknown && c.Verb == Allow || !m.Src.reaches(f) || !m.Dst.reaches(f) {
			return out
		}
	}
	for _, g := range x.groups() {
		src, dst := x.side(regionsOf(from), g.proto, srcOf), x.side(regionsOf(to), g.proto, dstOf)
		if len(src)*len(dst)*len(g.protos)*max(1, len(g.icmp)) > MaxAtoms {
			x.broad = true
		}
		if src = x.known(src); x.broad {
			break
		}
		out = g.atoms(out, c.Verb, src, dst)
	}
	if !x.broad && (!x.WholeBytes || f == V4 || Widened(out[start:]) <= MaxAtoms) {
		return x.Widen(out, start)
	}
	x.Coarse = true
	x.Note(c, "is too big to be written out")
	return Instead(out[:start], c, from, to)
}

// Instead returns the replacement of a clause that cannot be expanded: nothing, or everything if it denies.
func Instead(out []Atom, c *Clause, from, to []netip.Prefix) []Atom {
	if c.Verb == Allow {
		return out
	}
	return group{protos: []uint8{0}}.atoms(out, c.Verb, regionsOf(from), regionsOf(to))
}

func regionsOf(nets []netip.Prefix) []region {
	out := make([]region, len(nets))
	for i, n := range nets {
		out[i] = region{n, AllPorts}
	}
	return out
}

func srcOf(m *Match) *Side { return &m.Src }
func dstOf(m *Match) *Side { return &m.Dst }

// side returns the regions that one side of the clause matches, for packets of a protocol that has ports (0: a protocol without).
func (x *Expander) side(r []region, proto uint8, of func(*Match) *Side) []region {
	for _, m := range x.c.Matches {
		s := of(m)
		if s.Open() || len(r) == 0 {
			continue
		}
		if s.Nets != nil {
			r = within(r, ofFamily(s.Nets, x.f))
		}
		for _, id := range s.Sets {
			r = x.intersectSet(r, id, within)
		}
		if s.NotNets != nil {
			r = outside(r, ofFamily(s.NotNets, x.f))
		}
		for _, id := range s.NotSets {
			r = x.intersectSet(r, id, outside)
		}
		if !s.anyPort() {
			r = x.ports(r, s, proto)
		}
		if len(r) > MaxAtoms {
			x.broad = true
			return nil
		}
	}
	return r
}

// intersectSet intersects regions with a set of prefixes. An unknown set leaves nothing to allow and everything to deny.
func (x *Expander) intersectSet(r []region, id string, cut func([]region, prefixList) []region) []region {
	s := x.Sets[id]
	if s.Known() {
		return cut(r, &s.nets[x.f])
	}
	x.missing(id, s)
	if x.c.Verb == Allow {
		return nil
	}
	return r
}

// endpoints returns the members of a set with ports; false if they are not known.
func (x *Expander) endpoints(id string) ([]endpoint, bool) {
	s := x.Sets[id]
	if s != nil && s.ported && len(s.bad) == 0 {
		return s.endpoints(), true
	}
	x.missing(id, s)
	return nil, false
}

func (x *Expander) missing(id string, s *Set) {
	switch {
	case s == nil:
		x.Note(x.c, "refers to set %s, which is not known", id)
	case len(s.bad) > 0:
		x.Note(x.c, "refers to set %s, which has a member that cannot be read", id)
	default:
		x.Note(x.c, "refers to set %s, which is of another type", id)
	}
}

// ports intersects regions with the ports of a side, for packets of a protocol.
func (x *Expander) ports(r []region, s *Side, proto uint8) []region {
	if proto == SCTP && !x.SCTP || proto == UDPLite { // ports that VPP does not compare
		if x.c.Verb == Allow {
			return nil
		}
		return r
	}
	if s.Ports != nil || s.Named != nil {
		var named []region
		for _, id := range s.Named {
			eps, ok := x.endpoints(id)
			switch {
			case ok:
				named = append(named, at(r, eps, proto)...)
			case x.c.Verb == Deny:
				return r
			}
		}
		r = append(onPorts(r, s.Ports), named...)
	}
	for _, id := range s.IPPorts {
		if eps, ok := x.endpoints(id); ok {
			r = at(r, eps, proto)
		} else if x.c.Verb == Allow {
			return nil
		}
	}
	if proto != 0 {
		r = offPorts(r, s.NotPorts)
	}
	for _, id := range s.NotNamed {
		if eps, ok := x.endpoints(id); ok {
			r = notAt(r, eps, proto)
		} else if x.c.Verb == Allow {
			return nil
		}
	}
	return r
}

// group is a set of protocols with equal atoms.
type group struct {
	proto  uint8     // the one whose ports are compared; 0: none
	protos []uint8   // 0: any
	icmp   [][2]Span // type and code; nil: everything
}

func (g group) atoms(out []Atom, v Verb, src, dst []region) []Atom {
	for _, proto := range g.protos {
		for _, s := range src {
			for _, d := range dst {
				a := Atom{Verb: v, Src: s.net, Dst: d.net, Proto: proto, SrcPorts: s.ports, DstPorts: d.ports}
				if g.icmp == nil {
					out = append(out, a)
					continue
				}
				for _, box := range g.icmp {
					a.SrcPorts, a.DstPorts = box[0], box[1]
					out = append(out, a)
				}
			}
		}
	}
	return out
}

// groups returns the protocols that the clause matches, in groups.
func (x *Expander) groups() []group {
	protos := protoSet{}
	ported, typed := false, false
	for _, m := range x.c.Matches {
		protos.and(m)
		if !m.Src.anyPort() || !m.Dst.anyPort() {
			ported = true
			if m.Proto == UDPLite { // the filter decides about ports of SCTP: see filter
				x.Note(x.c, "asks for ports of a protocol whose ports VPP does not look at")
			}
		}
		if m.ICMP != nil {
			protos.only(x.f.ICMP())
		}
		typed = typed || m.ICMP != nil || m.NotICMP != nil
	}
	if x.SCTP {
		protos.only(SCTP)
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
		case typed && proto == x.f.ICMP():
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
	return proto == TCP || proto == UDP || proto == SCTP || proto == UDPLite
}

// boxes returns the ICMP types and codes that the clause matches.
func (x *Expander) boxes() [][2]Span {
	out := [][2]Span{{{0, 255}, {0, 255}}}
	for _, m := range x.c.Matches {
		if m.ICMP != nil {
			out = boxesIn(out, m.ICMP.box())
		}
		if m.NotICMP != nil {
			out = boxesOut(out, m.NotICMP.box())
		}
	}
	if out == nil {
		return [][2]Span{}
	}
	return out
}

func (i *ICMPKind) box() [2]Span {
	b := [2]Span{{uint16(i.typ), uint16(i.typ)}, {0, 255}}
	if i.code >= 0 {
		b[1] = Span{uint16(i.code), uint16(i.code)}
	}
	return b
}

func boxesIn(boxes [][2]Span, by [2]Span) (out [][2]Span) {
	for _, b := range boxes {
		t, ok := b[0].And(by[0])
		c, also := b[1].And(by[1])
		if ok && also {
			out = append(out, [2]Span{t, c})
		}
	}
	return out
}

func boxesOut(boxes [][2]Span, by [2]Span) (out [][2]Span) {
	for _, b := range boxes {
		for _, t := range b[0].Minus(by[0]) {
			out = append(out, [2]Span{t, b[1]})
		}
		if t, ok := b[0].And(by[0]); ok {
			for _, c := range b[1].Minus(by[1]) {
				out = append(out, [2]Span{t, c})
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

func (p *protoSet) exclude(proto uint8) { p.out[proto/64] |= 1 << (proto % 64) }

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

func (p *protoSet) and(m *Match) {
	if m.Proto > 0 {
		p.only(uint8(m.Proto))
	}
	if m.NotProto > 0 {
		p.exclude(uint8(m.NotProto))
	}
	if m.Src.Ports != nil || m.Src.Named != nil || m.Dst.Ports != nil || m.Dst.Named != nil || m.Dst.IPPorts != nil || m.Src.IPPorts != nil {
		p.keep(TCP, UDP, SCTP, UDPLite)
	}
}

// Widened returns the number of atoms after prefixes are extended to whole bytes.
func Widened(list []Atom) int {
	n := 0
	for _, a := range list {
		n += budget.WholeBytes(a.Src.Bits()) * budget.WholeBytes(a.Dst.Bits())
	}
	return n
}

// Widen replaces the IPv6 prefixes of list[start:] that end within a byte by longer ones, if VPP cannot compare such prefixes.
func (x *Expander) Widen(list []Atom, start int) []Atom {
	odd := func(p netip.Prefix) bool { return p.Bits()%8 != 0 && p.Addr().Is6() }
	if !x.WholeBytes || !slices.ContainsFunc(list[start:], func(a Atom) bool { return odd(a.Src) || odd(a.Dst) }) {
		return list
	}
	out := slices.Clone(list[:start])
	for _, a := range list[start:] {
		dsts := wholeBytes(a.Dst)
		for _, src := range wholeBytes(a.Src) {
			for _, dst := range dsts {
				a.Src, a.Dst = src, dst
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
