package space

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// The values that random boxes and headers have: few, so that they meet.
var (
	someAddrs = []string{"10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.1.7", "255.255.255.255", "0.0.0.0", "fd00::", "fd00::1", "fd00:0:0:1::", "fe80::1", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}
	someBits4 = []int{0, 1, 24, 31, 32}
	someBits6 = []int{0, 10, 63, 64, 65, 127, 128}
	somePorts = []uint16{0, 1, 79, 80, 81, 32767, 32768, 65534, 65535}
	someFlags = []uint8{0, SYN, ACK, SYN | ACK, RST, FIN | ACK, 255}
	protocols = []uint8{0, ICMP, TCP, UDP, ICMPv6, SCTP, 255}
)

func prefixes(six bool) *rapid.Generator[netip.Prefix] {
	return rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := addr(six).Draw(t, "address")
		if six {
			return netip.PrefixFrom(a, rapid.SampledFrom(someBits6).Draw(t, "bits"))
		}
		return netip.PrefixFrom(a, rapid.SampledFrom(someBits4).Draw(t, "bits"))
	})
}

func addr(six bool) *rapid.Generator[netip.Addr] {
	var list []netip.Addr
	for _, text := range someAddrs {
		if a := netip.MustParseAddr(text); a.Is6() == six {
			list = append(list, a)
		}
	}
	return rapid.SampledFrom(list)
}

func spans() *rapid.Generator[Span] {
	return rapid.Custom(func(t *rapid.T) Span {
		if rapid.Bool().Draw(t, "any") {
			return Full()
		}
		return Span{rapid.SampledFrom(somePorts).Draw(t, "first"), rapid.SampledFrom(somePorts).Draw(t, "last")}
	})
}

func randomBox() *rapid.Generator[Box] {
	return rapid.Custom(func(t *rapid.T) Box {
		six := rapid.Bool().Draw(t, "six")
		b := Box{
			Src: prefixes(six).Draw(t, "src"), Dst: prefixes(six).Draw(t, "dst"), Protocols: Span{0, 255},
			SrcPorts: spans().Draw(t, "sports"), DstPorts: spans().Draw(t, "dports"),
		}
		if rapid.Bool().Draw(t, "with protocol") {
			b.Protocols = One(uint16(rapid.SampledFrom(protocols).Draw(t, "protocol")))
			b.FlagMask = rapid.SampledFrom(someFlags).Draw(t, "mask")
			b.FlagBits = rapid.SampledFrom(someFlags).Draw(t, "bits")
		}
		return b
	})
}

func randomHeader() *rapid.Generator[Header] {
	return rapid.Custom(func(t *rapid.T) Header {
		six := rapid.Bool().Draw(t, "six")
		near := func(a netip.Addr) netip.Addr { // also the neighbours of the ends of ranges
			switch rapid.IntRange(0, 2).Draw(t, "near") {
			case 0:
				if n := a.Next(); n.IsValid() {
					return n
				}
			case 1:
				if p := a.Prev(); p.IsValid() {
					return p
				}
			}
			return a
		}
		return Header{
			Src: near(addr(six).Draw(t, "src")), Dst: near(addr(six).Draw(t, "dst")), Protocol: rapid.SampledFrom(protocols).Draw(t, "protocol"),
			SrcPort: rapid.SampledFrom(somePorts).Draw(t, "sport"), DstPort: rapid.SampledFrom(somePorts).Draw(t, "dport"),
			Flags: rapid.SampledFrom(someFlags).Draw(t, "flags"),
		}
	})
}

// model is a set by its definition: a function of the header.
type model func(Header) bool

func randomSet(t *rapid.T, s *Space) (Set, model) {
	set, has := Set{}, model(func(Header) bool { return false })
	for range rapid.IntRange(0, 5).Draw(t, "operations") {
		b, before := randomBox().Draw(t, "box"), has
		box := s.Box(b)
		switch rapid.SampledFrom([]string{"union", "intersect", "minus", "complement"}).Draw(t, "operation") {
		case "union":
			set, has = s.Union(set, box), func(h Header) bool { return before(h) || b.Contains(h) }
		case "intersect":
			set, has = s.Intersect(s.Complement(set), box), func(h Header) bool { return !before(h) && b.Contains(h) }
		case "minus":
			set, has = s.Minus(set, box), func(h Header) bool { return before(h) && !b.Contains(h) }
		case "complement":
			set, has = s.Complement(set), func(h Header) bool { return !before(h) }
		}
	}
	return set, has
}

func headers(t *rapid.T) []Header { return rapid.SliceOfN(randomHeader(), 30, 30).Draw(t, "headers") }

func TestSetsHoldTheHeadersOfTheirDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		set, has := randomSet(t, s)
		for _, h := range headers(t) {
			if s.Contains(set, h) != has(h) {
				t.Fatalf("%v: in the set %v, by definition %v", h, !has(h), has(h))
			}
		}
		h, any := s.Witness(set)
		if any == set.Empty() || any && (!has(h) || !s.Contains(set, h)) {
			t.Fatalf("witness %v, %v of a set that is empty: %v", h, any, set.Empty())
		}
	})
}

// TestEqualSetsAreIdentical checks the laws of sets: both sides of each have the same headers, and so they are one diagram.
func TestEqualSetsAreIdentical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		a, _ := randomSet(t, s)
		b, _ := randomSet(t, s)
		c, _ := randomSet(t, s)
		for name, law := range map[string][2]Set{
			"commutes":     {s.Union(a, b), s.Union(b, a)},
			"associates":   {s.Union(a, s.Union(b, c)), s.Union(s.Union(a, b), c)},
			"distributes":  {s.Intersect(a, s.Union(b, c)), s.Union(s.Intersect(a, b), s.Intersect(a, c))},
			"de Morgan":    {s.Complement(s.Union(a, b)), s.Intersect(s.Complement(a), s.Complement(b))},
			"minus":        {s.Minus(a, b), s.Intersect(a, s.Complement(b))},
			"twice":        {s.Complement(s.Complement(a)), a},
			"divided":      {s.Union(s.Minus(a, b), s.Intersect(a, b)), a},
			"of many":      {s.Union(a, b, c), s.Union(s.Union(a, b), c)},
			"other column": {s.Where(Decisions(a), 1), a},
		} {
			if law[0] != law[1] {
				t.Fatalf("%s: the two sides differ", name)
			}
		}
		if s.Within(a, b) != (s.Union(a, b) == b) {
			t.Fatal("a is within b, and their union is not b")
		}
	})
}

func TestFirstRuleDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rule {
			return Rule{randomBox().Draw(t, "box"), rapid.Uint8Range(1, 3).Draw(t, "verdict")}
		}), 0, 12).Draw(t, "rules")
		d := s.List(rules)
		verdict := func(h Header) uint8 {
			for i := range rules {
				if rules[i].Contains(h) {
					return rules[i].Verdict
				}
			}
			return 0
		}
		for _, h := range headers(t) {
			if got := s.Verdict(d, h); got != verdict(h) {
				t.Fatalf("%v: verdict %d, the rules say %d", h, got, verdict(h))
			}
			if s.Contains(s.Where(d, 0, 2), h) != (verdict(h)%2 == 0) {
				t.Fatalf("%v: verdict %d", h, verdict(h))
			}
		}
		at := rapid.IntRange(0, len(rules)).Draw(t, "at")
		if joined := s.Override(s.List(rules[:at]), s.List(rules[at:])); joined != d {
			t.Fatal("the list in two parts decides otherwise")
		}
	})
}

func TestTranslation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		set, has := randomSet(t, s)
		to := netip.AddrPortFrom(addr(rapid.Bool().Draw(t, "six")).Draw(t, "to"), rapid.SampledFrom(somePorts).Draw(t, "port"))
		origin, image := s.Origin(set, to), s.Translated(set, to)
		for _, h := range headers(t) {
			moved := h
			moved.Dst, moved.DstPort = to.Addr(), to.Port()
			same := h.Src.Is4() == to.Addr().Is4()
			if s.Contains(origin, h) != (same && has(moved)) {
				t.Fatalf("%v: an origin %v, translated in the set %v", h, s.Contains(origin, h), has(moved))
			}
			if same && has(h) && !s.Contains(image, moved) {
				t.Fatalf("%v is in the set, and not its translation", h)
			}
		}
		if s.Origin(image, to) != s.Complement(s.Complement(s.Origin(image, to))) || s.Translated(s.Origin(set, to), to) != s.Intersect(set, s.destination(to)) {
			t.Fatal("the translation of all origins is not what the set has of it")
		}
		if back := s.Origin(image, to); !s.Within(s.Intersect(set, s.family(to)), back) {
			t.Fatal("a header of the set is no origin of the set's translation")
		}
	})
}

func (s *Space) destination(to netip.AddrPort) Set {
	b := All4()
	if to.Addr().Is6() {
		b = All6()
	}
	b.Dst, b.DstPorts = netip.PrefixFrom(to.Addr(), to.Addr().BitLen()), One(to.Port())
	return s.Box(b)
}

func (s *Space) family(to netip.AddrPort) Set {
	if to.Addr().Is6() {
		return s.Box(All6())
	}
	return s.Box(All4())
}

func TestBoxOfTwoFamiliesIsEmpty(t *testing.T) {
	b := All4()
	b.Dst = All6().Dst
	if s := New(); !s.Box(b).Empty() || s.List([]Rule{{b, 1}}) != (Decisions{}) {
		t.Error("a box from IPv4 to IPv6 has headers")
	}
}

func TestHeaderText(t *testing.T) {
	a, b := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3")
	for want, h := range map[string]Header{
		"tcp 10.1.1.2:40000 -> 10.1.1.3:80 SYN ACK": {a, b, TCP, 40000, 80, SYN | ACK},
		"udp 10.1.1.2:53 -> 10.1.1.3:53":            {a, b, UDP, 53, 53, 0},
		"icmp 10.1.1.2 -> 10.1.1.3 type 8 code 0":   {a, b, ICMP, 8, 0, 0},
		"protocol 47 10.1.1.2 -> 10.1.1.3":          {a, b, 47, 0, 0, 0},
	} {
		if h.String() != want {
			t.Errorf("%q, want %q", h, want)
		}
	}
}
