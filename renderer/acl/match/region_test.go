package match

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
)

// Intersections with prefixes and ports keep exactly the right points.
func TestRegions(t *testing.T) {
	small := rapid.Custom(func(t *rapid.T) netip.Prefix { // within 10.0.0.0/28, so that they overlap
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 15).Draw(t, "host"))}), rapid.IntRange(27, 32).Draw(t, "bits")).Masked()
	})
	port := rapid.Custom(func(t *rapid.T) Span {
		lo := uint16(rapid.IntRange(0, 5).Draw(t, "lo"))
		return Span{lo, lo + uint16(rapid.IntRange(0, 3).Draw(t, "more"))}
	})
	rapid.Check(t, func(t *rapid.T) {
		have := []region{{netip.MustParsePrefix("10.0.0.0/28"), Span{0, 7}}, {small.Draw(t, "also"), port.Draw(t, "ports")}}
		by := rapid.SliceOfN(small, 0, 4).Draw(t, "by")
		slices.SortFunc(by, netset.Compare)
		by = slices.Compact(by)
		ports := rapid.SliceOfN(port, 0, 3).Draw(t, "by ports")
		set := &netSet{}
		for _, p := range by {
			set.addPrefix(p)
		}
		ep := endpoint{netip.AddrFrom4([4]byte{10, 0, 0, 3}), TCP, 2}
		for _, cut := range []struct {
			name string
			got  []region
			keep func(a netip.Addr, port uint16) bool
		}{
			{"within few", within(have, Prefixes(by)), func(a netip.Addr, _ uint16) bool { return holds(by, a) }},
			{"within set", within(have, set), func(a netip.Addr, _ uint16) bool { return holds(by, a) }},
			{"outside few", outside(have, Prefixes(by)), func(a netip.Addr, _ uint16) bool { return !holds(by, a) }},
			{"outside set", outside(have, set), func(a netip.Addr, _ uint16) bool { return !holds(by, a) }},
			{"on ports", onPorts(have, ports), func(_ netip.Addr, p uint16) bool { return onAny(ports, p) }},
			{"off ports", offPorts(have, ports), func(_ netip.Addr, p uint16) bool { return !onAny(ports, p) }},
			{"at", at(have, []endpoint{ep}, TCP), func(a netip.Addr, p uint16) bool { return a == ep.addr && p == ep.port }},
			{"not at", notAt(have, []endpoint{ep}, TCP), func(a netip.Addr, p uint16) bool { return a != ep.addr || p != ep.port }},
			{"not at, of another protocol", notAt(have, []endpoint{ep}, UDP), func(netip.Addr, uint16) bool { return true }},
		} {
			for host := range byte(16) {
				a := netip.AddrFrom4([4]byte{10, 0, 0, host})
				for p := range uint16(10) {
					want := contains(have, a, p) && cut.keep(a, p)
					if got := contains(cut.got, a, p); got != want {
						t.Fatalf("%s: %s port %d: got %v, want %v\nhave %v by %v %v\nleft %v", cut.name, a, p, got, want, have, by, ports, cut.got)
					}
				}
			}
		}
	})
}

func holds(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

func onAny(list []Span, p uint16) bool {
	return slices.ContainsFunc(list, func(s Span) bool { return s.Lo <= p && p <= s.Hi })
}

func contains(list []region, a netip.Addr, p uint16) bool {
	return slices.ContainsFunc(list, func(r region) bool { return r.net.Contains(a) && r.ports.Lo <= p && p <= r.ports.Hi })
}

// Prefixes that end within a byte are extended on both sides.
func TestWiden(t *testing.T) {
	a := Atom{Src: netip.MustParsePrefix("fd00::/15"), Dst: netip.MustParsePrefix("fd00::/30"), SrcPorts: AllPorts, DstPorts: AllPorts}
	x := Expander{WholeBytes: true}
	got := x.Widen([]Atom{a, a}, 1)
	if len(got) != 1+2*4 || got[0] != a {
		t.Fatalf("%d atoms: %v", len(got), got)
	}
	seen := map[Atom]bool{}
	for _, w := range got[1:] {
		if w.Src.Bits() != 16 || w.Dst.Bits() != 32 || !a.Src.Contains(w.Src.Addr()) || !a.Dst.Contains(w.Dst.Addr()) || seen[w] {
			t.Errorf("%v", w)
		}
		seen[w] = true
	}
	x.WholeBytes = false
	if got := x.Widen([]Atom{a}, 0); len(got) != 1 {
		t.Errorf("without the bug: %v", got)
	}
}
