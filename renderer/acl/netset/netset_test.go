package netset

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3": "10.1.2.3/32", "10.1.2.3/8": "10.0.0.0/8", "fd00::1": "fd00::1/128", "::ffff:10.1.2.3": "10.1.2.3/32", "::ffff:10.1.2.3/104": "10.0.0.0/8",
		"::ffff:10.0.0.0/90": "", "fe80::1%eth0": "", "10.1.2.3/33": "", "": "",
	} {
		if p, err := Parse(text); err != nil && want != "" || err == nil && p.String() != want {
			t.Errorf("%q is %v, %v; want %q", text, p, err, want)
		}
	}
}

// TestSets: parts of lists have exactly the addresses that they should have.
func TestSets(t *testing.T) {
	addr := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		return netip.PrefixFrom(addr(rapid.IntRange(0, 15).Draw(t, "addr")), rapid.IntRange(28, 32).Draw(t, "bits")).Masked()
	})
	rapid.Check(t, func(t *rapid.T) {
		list, p := rapid.SliceOfN(prefix, 0, 6).Draw(t, "list"), prefix.Draw(t, "prefix")
		apart := Separate(slices.Clone(list))
		has := func(list []netip.Prefix, a netip.Addr) bool {
			return slices.ContainsFunc(list, func(n netip.Prefix) bool { return n.Contains(a) })
		}
		left := Rest(nil, p, Inside(apart, p))
		covered := slices.ContainsFunc(apart, func(n netip.Prefix) bool { _, ok := Overlap(n, p); return ok && n.Bits() <= p.Bits() })
		for n := range 16 {
			a := addr(n)
			if has(apart, a) != has(list, a) || !covered && has(left, a) != (p.Contains(a) && !has(list, a)) {
				t.Fatalf("%s: %v becomes %v, and %v without it %v", a, list, apart, p, left)
			}
		}
		if !EachWithin(list, apart) || EachWithin([]netip.Prefix{p}, apart) != covered {
			t.Fatal(fmt.Sprint(list, apart, p))
		}
	})
}
