package space

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestPartsMakeTheSet divides sets by field after field: a header is in exactly the parts that have its values, or in none.
func TestPartsMakeTheSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		set, _ := randomSet(t, s)
		for _, h := range headers(t) {
			if got, want := divided(s, set, h), s.Contains(set, h); got != want {
				t.Fatalf("%s: in the parts %v, in the set %v", h, got, want)
			}
		}
	})
}

func divided(s *Space, set Set, h Header) bool {
	at := func(parts []Addresses, a netip.Addr) (rest Set) {
		for _, p := range parts {
			if p.First.Is4() == a.Is4() && !a.Less(p.First) && !p.Last.Less(a) {
				rest = s.Union(rest, p.Rest)
			}
		}
		return rest
	}
	number := func(parts []Numbers, v uint16) (rest Set) {
		for _, p := range parts {
			if p.First <= v && v <= p.Last {
				rest = s.Union(rest, p.Rest)
			}
		}
		return rest
	}
	set = at(BySource(s, set), h.Src)
	set = at(ByDestination(s, set), h.Dst)
	set = number(ByProtocol(s, set), uint16(h.Protocol))
	set = number(BySourcePort(s, set), h.SrcPort)
	set = number(ByDestinationPort(s, set), h.DstPort)
	return s.Contains(set, h)
}

func TestDivisionNeedsTheOrderOfFields(t *testing.T) {
	s := New()
	b := All4()
	b.Src, b.Dst = netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")
	defer func() {
		if recover() == nil {
			t.Error("a set with a condition on sources is divided by destination")
		}
	}()
	ByDestination(s, s.Box(b))
}

// TestMovedHostsKeepTheirHeaders moves hosts, also to addresses of other hosts: the result has a header if the set has the one with the
// addresses before.
func TestMovedHostsKeepTheirHeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		set, _ := randomSet(t, s)
		var moves []Move
		for _, six := range []bool{false, true} {
			from := rapid.SliceOfN(addr(six), 0, 3).Draw(t, "from")
			to := rapid.SliceOfNDistinct(addr(six), len(from), len(from), rapid.ID[netip.Addr]).Draw(t, "to")
			for i := range from {
				moves = append(moves, Move{from[i], to[i]})
			}
		}
		moved := Moved(s, set, moves)
		for _, h := range headers(t) {
			before, ok := h, true
			for _, a := range []*netip.Addr{&before.Src, &before.Dst} {
				var known bool
				*a, known = origin(*a, moves)
				ok = ok && known
			}
			if got, want := s.Contains(moved, h), ok && s.Contains(set, before); got != want {
				t.Fatalf("%s, before %s: %v, want %v; moves %v", h, before, got, want, moves)
			}
		}
	})
}

// origin is the address before the moves; false: no host has it after them.
func origin(a netip.Addr, moves []Move) (netip.Addr, bool) {
	left := false
	for _, m := range moves {
		if m.To == a {
			return m.From, true
		}
		left = left || m.From == a
	}
	return a, !left
}
