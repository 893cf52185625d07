package space

import "net/netip"

// Space makes sets of headers, and keeps what they share. It is not safe for concurrent use. It forgets nothing: for unrelated work take
// another one.
type Space struct {
	diagrams
	boxes map[Rule]pair
	lists map[[2]ref]ref // results of override between parts of lists, which done may forget
	marks map[mark]ref   // sets with a verdict in place of 1
}

// pair is a diagram of each family.
type pair struct{ v4, v6 ref }

// New returns a Space without sets.
func New() *Space {
	return &Space{diagrams: newDiagrams(), boxes: map[Rule]pair{}, lists: map[[2]ref]ref{}, marks: map[mark]ref{}}
}

// Set is a set of headers of a Space. The zero value is the empty set of every Space.
type Set pair

// Size is the number of nodes and edges that the Space holds.
func (s *Space) Size() (nodes, edges int) { return len(s.nodes), len(s.edges) }

// Box is the set of a box's headers.
func (s *Space) Box(b Box) Set { return Set(s.box(b, 1)) }

// All is the set of all headers of both families.
func (s *Space) All() Set { return Set{1, 1} }

// Union is the headers of any of the sets.
func (s *Space) Union(sets ...Set) (out Set) {
	for len(sets) > 1 { // neighbours first: a set of thousands of addresses grows in few steps
		next := make([]Set, 0, (len(sets)+1)/2)
		for i := 0; i < len(sets); i += 2 {
			one := sets[i]
			if i+1 < len(sets) {
				one = s.both(union, one, sets[i+1])
			}
			next = append(next, one)
		}
		sets = next
	}
	if len(sets) == 1 {
		return sets[0]
	}
	return out
}

// Intersect is the headers that both sets have.
func (s *Space) Intersect(a, b Set) Set { return s.both(intersection, a, b) }

// Minus is the headers of the first set that the second does not have.
func (s *Space) Minus(a, b Set) Set { return s.both(difference, a, b) }

// Complement is all other headers.
func (s *Space) Complement(a Set) Set { return s.Minus(s.All(), a) }

// Empty reports whether the set has no header.
func (a Set) Empty() bool { return a == Set{} }

// Within reports whether the second set has all headers of the first.
func (s *Space) Within(a, b Set) bool { return s.Minus(a, b).Empty() }

func (s *Space) both(o op, a, b Set) Set {
	return Set{s.combine(o, a.v4, b.v4), s.combine(o, a.v6, b.v6)}
}

// Contains reports whether the set has the header.
func (s *Space) Contains(a Set, h Header) bool { return s.find(pair(a), h) == 1 }

// find returns the verdict about a header.
func (s *Space) find(p pair, h Header) ref {
	r := p.v6
	if h.Src.Is4() {
		r = p.v4
	}
	for r >= firstNode {
		es := s.edgesOf(r)
		v := h.value(s.level(r))
		low, high := 0, len(es)-1
		for low < high {
			if at := (low + high) / 2; es[at].last.less(v) {
				low = at + 1
			} else {
				high = at
			}
		}
		r = es[low].to
	}
	return r
}

func (h *Header) value(f field) number {
	switch f {
	case source:
		return numberOf(h.Src)
	case destination:
		return numberOf(h.Dst)
	case protocol:
		return number{0, uint64(h.Protocol)}
	case sourcePort:
		return number{0, uint64(h.SrcPort)}
	case destinationPort:
		return number{0, uint64(h.DstPort)}
	}
	return number{0, fromFlags(h.Flags)}
}

// Witness returns a header of the set, the same one for equal sets; false: the set is empty. It prefers the first value of each field.
func (s *Space) Witness(a Set) (h Header, ok bool) {
	r, six := a.v4, false
	if r == 0 {
		r, six = a.v6, true
	}
	if r == 0 {
		return Header{}, false
	}
	var values [fields]number
	for r >= firstNode {
		next := number{}
		for _, e := range s.edgesOf(r) {
			if e.to != 0 {
				values[s.level(r)], r = next, e.to
				break
			}
			next = e.last.next()
		}
	}
	return headerOf(values, six), true
}

func headerOf(values [fields]number, six bool) Header {
	return Header{
		Src: addrOf(values[source], six), Dst: addrOf(values[destination], six), Protocol: uint8(values[protocol].low),
		SrcPort: uint16(values[sourcePort].low), DstPort: uint16(values[destinationPort].low), Flags: toFlags(values[flags].low),
	}
}

// box is the diagram of a box with a verdict.
func (s *Space) box(b Box, verdict uint8) pair {
	b.Src, b.Dst = b.Src.Masked(), b.Dst.Masked()
	key := Rule{b, verdict}
	if p, known := s.boxes[key]; known {
		return p
	}
	six, r := b.Src.Addr().Is6(), s.flagsBox(b.FlagMask, b.FlagBits, ref(verdict))
	spans := [fields][2]number{protocol: numbers(b.Protocols), sourcePort: numbers(b.SrcPorts), destinationPort: numbers(b.DstPorts)}
	spans[source][0], spans[source][1] = rangeOf(b.Src)
	spans[destination][0], spans[destination][1] = rangeOf(b.Dst)
	for f := destinationPort; ; f-- {
		if spans[f][1].less(spans[f][0]) {
			r = 0
		}
		if r != 0 {
			r = s.between(f, spans[f][0], spans[f][1], mostOf(f, six), r)
		}
		if f == source {
			break
		}
	}
	var p pair
	if p.v4 = r; six {
		p = pair{v6: r}
	}
	if b.Dst.Addr().Is6() != six {
		p = pair{}
	}
	s.boxes[key] = p
	return p
}

func numbers(s Span) [2]number { return [2]number{{0, uint64(s.First)}, {0, uint64(s.Last)}} }

func (s *Space) flagsBox(mask, bits uint8, to ref) ref {
	if mask == 0 && bits == 0 {
		return to
	}
	from := len(s.stack)
	for v := range uint64(256) {
		if toFlags(v)&mask == bits {
			s.push(from, number{0, v}, to)
		} else {
			s.push(from, number{0, v}, 0)
		}
	}
	return s.pop(flags, from)
}

// Sources is the set of all headers from an address of the prefixes; Destinations is that of headers to them.
func (s *Space) Sources(prefixes ...netip.Prefix) Set {
	return s.prefixes(prefixes, func(b *Box, p netip.Prefix) { b.Src = p })
}

// Destinations is the set of all headers to an address of the prefixes.
func (s *Space) Destinations(prefixes ...netip.Prefix) Set {
	return s.prefixes(prefixes, func(b *Box, p netip.Prefix) { b.Dst = p })
}

func (s *Space) prefixes(list []netip.Prefix, put func(*Box, netip.Prefix)) Set {
	sets := make([]Set, 0, len(list))
	for _, p := range list {
		b := All4()
		if p.Addr().Is6() {
			b = All6()
		}
		put(&b, p)
		sets = append(sets, s.Box(b))
	}
	return s.Union(sets...)
}
