package cidr

import (
	"net/netip"
	"testing"
)

// Equal networks are equal values, and every value gives its prefix again.
func TestRoundTrip(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3/16": "10.1.0.0/16", "10.1.0.0/16": "10.1.0.0/16", "0.0.0.0/0": "0.0.0.0/0", "fd00::1/64": "fd00::/64", "::/0": "::/0",
		"::ffff:10.1.2.3/112": "10.1.0.0/16", "255.255.255.255/32": "255.255.255.255/32",
	} {
		c := Of(netip.MustParsePrefix(text))
		if p := c.Prefix(); p.String() != want || Of(p) != c {
			t.Errorf("%s: %s, want %s", text, p, want)
		}
	}
	if Host(netip.MustParseAddr("::ffff:10.0.0.1")) != Of(netip.MustParsePrefix("10.0.0.1/32")) {
		t.Error("an IPv4-mapped address is another host")
	}
}

func TestBits(t *testing.T) {
	a, b := Of(netip.MustParsePrefix("10.1.0.0/16")), Of(netip.MustParsePrefix("10.3.0.0/17"))
	if n := a.Common(b); n != 14 || a.Truncate(n) != b.Truncate(n) || a.Bit(14) == b.Bit(14) {
		t.Errorf("%d bits in common, %s and %s", n, a.Truncate(n).Prefix(), b.Truncate(n).Prefix())
	}
	six := Of(netip.MustParsePrefix("fd00:0:0:1::/64"))
	if six.Bit(0) != 1 || six.Bit(63) != 1 || six.Bit(62) != 0 || a.Compare(six) >= 0 {
		t.Errorf("bits of %s", six.Prefix())
	}
}
