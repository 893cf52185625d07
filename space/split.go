package space

import "net/netip"

// Addresses is the headers of a set with an address from First to Last. Rest is these headers with any address.
type Addresses struct {
	First, Last netip.Addr
	Rest        Set
}

// Numbers is the headers of a set with a protocol or port from First to Last. Rest is these headers with any.
type Numbers struct {
	Span
	Rest Set
}

// BySource divides a set by its source addresses, in order, IPv4 first. Parts without headers are left out.
func BySource(s *Space, a Set) []Addresses { return byAddress(s, a, source) }

// ByDestination divides a set that has no condition on sources, such as a Rest of BySource, by its destination addresses.
func ByDestination(s *Space, a Set) []Addresses { return byAddress(s, a, destination) }

// ByProtocol divides a set that has no condition on addresses.
func ByProtocol(s *Space, a Set) []Numbers { return byNumber(s, a, protocol) }

// BySourcePort divides a set that has no condition on addresses and protocols. The port is also the type of ICMP.
func BySourcePort(s *Space, a Set) []Numbers { return byNumber(s, a, sourcePort) }

// ByDestinationPort divides a set that has no condition on the fields before it. The port is also the code of ICMP.
func ByDestinationPort(s *Space, a Set) []Numbers { return byNumber(s, a, destinationPort) }

func byAddress(s *Space, a Set, f field) (out []Addresses) {
	parts(s, a.v4, f, false, func(first, last number, to ref) {
		out = append(out, Addresses{addrOf(first, false), addrOf(last, false), Set{v4: to}})
	})
	parts(s, a.v6, f, true, func(first, last number, to ref) {
		out = append(out, Addresses{addrOf(first, true), addrOf(last, true), Set{v6: to}})
	})
	return out
}

// byNumber divides both families. Parts of one family follow those of the other.
func byNumber(s *Space, a Set, f field) (out []Numbers) {
	span := func(first, last number) Span { return Span{uint16(first.low), uint16(last.low)} }
	parts(s, a.v4, f, false, func(first, last number, to ref) { out = append(out, Numbers{span(first, last), Set{v4: to}}) })
	parts(s, a.v6, f, true, func(first, last number, to ref) { out = append(out, Numbers{span(first, last), Set{v6: to}}) })
	return out
}

// parts calls visit for each interval of a field that leads to headers. It panics if the diagram has a field before this one.
func parts(s *Space, r ref, f field, six bool, visit func(first, last number, to ref)) {
	switch level := s.level(r); {
	case r == 0:
	case level < f:
		panic("space: a set is divided by a field before it is divided by an earlier one")
	case level > f:
		visit(number{}, mostOf(f, six), r)
	default:
		first := number{}
		for i := range s.edgeCount(r) {
			e := s.edge(r, i)
			if e.to != 0 {
				visit(first, e.last, e.to)
			}
			first = e.last.next()
		}
	}
}
