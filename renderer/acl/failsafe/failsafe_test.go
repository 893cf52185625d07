package failsafe

import (
	"net/netip"
	"slices"
	"testing"
)

// TestParse: settings as Felix has them; none of a list with one unreadable item counts.
func TestParse(t *testing.T) {
	anybody := netip.Prefix{}
	for _, c := range []struct {
		text string
		want []Port
		ok   bool
	}{
		{"", nil, false},
		{"none", nil, true},
		{"22", []Port{{6, anybody, 22}}, true},
		{"tcp:22, udp:10.0.0.0/8:53", []Port{{6, anybody, 22}, {17, netip.MustParsePrefix("10.0.0.0/8"), 53}}, true},
		{"tcp:[fd00::/8]:22", []Port{{6, netip.MustParsePrefix("fd00::/8"), 22}}, true},
		{"tcp:22,udp:68,tcp:10.0.0.0/8:22", []Port{{6, anybody, 22}, {17, anybody, 68}, {6, netip.MustParsePrefix("10.0.0.0/8"), 22}}, true},
		{"UDP:10.0.0.7:53", []Port{{17, netip.MustParsePrefix("10.0.0.7/32"), 53}}, true},
		{"None", nil, true},
		{"tcp:22,,udp:68", nil, false},
		{"tcp:", nil, false},
		{"tcp:-1", nil, false},
		{"sctp:22", nil, false},
		{"tcp:70000", nil, false},
		{"tcp:10.0.0.0/99:22", nil, false},
	} {
		if got, ok := Parse(c.text); ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("%q is %v, %v; want %v, %v", c.text, got, ok, c.want, c.ok)
		}
	}
}
