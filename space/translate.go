package space

import "net/netip"

// Translated is the headers of a set after their destination address and port are replaced. Headers of the other family are left out.
func (s *Space) Translated(a Set, to netip.AddrPort) Set {
	r := a.v4
	if to.Addr().Is6() {
		r = a.v6
	}
	any := s.forget(r)
	b := All4()
	if to.Addr().Is6() {
		b = All6()
	}
	b.Dst, b.DstPorts = netip.PrefixFrom(to.Addr(), to.Addr().BitLen()), One(to.Port())
	out := Set{v4: any}
	if to.Addr().Is6() {
		out = Set{v6: any}
	}
	return s.Intersect(out, s.Box(b))
}

// forget is a diagram without the destination's fields: it has a header if the set has it with any destination.
func (s *Space) forget(r ref) ref {
	known := map[ref]ref{}
	var all func(r ref, _ field) ref
	all = func(r ref, _ field) (to ref) {
		for i := range s.edgeCount(r) {
			to = s.combine(union, to, s.rebuild(s.edge(r, i).to, known, all))
		}
		return to
	}
	return s.rebuild(r, known, all)
}

// rebuild is a diagram whose nodes of the destination's fields are replaced. known has what was rebuilt before.
func (s *Space) rebuild(r ref, known map[ref]ref, replace func(r ref, f field) ref) ref {
	if r < firstNode {
		return r
	}
	if to, ok := known[r]; ok {
		return to
	}
	var to ref
	if f := s.level(r); f == destination || f == destinationPort {
		to = replace(r, f)
	} else {
		from := len(s.stack)
		for i := range s.edgeCount(r) {
			e := s.edge(r, i)
			s.push(from, e.last, s.rebuild(e.to, known, replace))
		}
		to = s.pop(f, from)
	}
	known[r] = to
	return to
}

// Origin is the headers whose destination address and port, once replaced, make a header of the set. It is the inverse of Translated: the
// destination of an origin may be any.
func (s *Space) Origin(a Set, to netip.AddrPort) Set {
	h := Header{Dst: to.Addr(), DstPort: to.Port()}
	if to.Addr().Is6() {
		return Set{v6: s.fix(a.v6, &h)}
	}
	return Set{v4: s.fix(a.v4, &h)}
}

// fix is a diagram where the destination's fields have the header's values.
func (s *Space) fix(r ref, h *Header) ref {
	known := map[ref]ref{}
	var its func(r ref, f field) ref
	its = func(r ref, f field) ref {
		for i := range s.edgeCount(r) {
			if e := s.edge(r, i); !e.last.less(h.value(f)) {
				return s.rebuild(e.to, known, its)
			}
		}
		return 0 // the edges cover all values
	}
	return s.rebuild(r, known, its)
}
