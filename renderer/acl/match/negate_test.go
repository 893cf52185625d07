package match

import (
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
)

// An exception leaves as many rules of a prefix as the budget counts for it, on every VPP.
func TestExceptionIsWrittenAsCounted(t *testing.T) {
	for _, hole := range []string{"10.1.2.3/32", "10.0.0.0/9", "fd00::/9", "fd00:1::/57", "fd00:1:2:3::/63", "fd00:1:2:3::/64", "fd00::1/127", "fd00::1/128"} {
		p := netip.MustParsePrefix(hole).Masked()
		for _, from := range []int{0, 3, 8} {
			for _, bytes := range []bool{false, true} {
				whole := netip.PrefixFrom(p.Addr(), from).Masked()
				var rules []Atom
				for _, rest := range netset.Rest(nil, whole, []netip.Prefix{p}) {
					rules = append(rules, Atom{Src: rest, Dst: FamilyOf(p.Addr()).All()})
				}
				x := Expander{WholeBytes: bytes}
				if n, want := len(x.Widen(rules, 0)), budget.Left(from, p.Bits(), p.Addr().Is6(), bytes); n != want {
					t.Errorf("%s without %s, by whole bytes %t: %d rules, counted are %d", whole, p, bytes, n, want)
				}
			}
		}
	}
	if n := budget.Left(0, 128, true, true); n != 4080 {
		t.Errorf("one IPv6 address leaves %d rules by whole bytes, want 4,080", n)
	}
}
