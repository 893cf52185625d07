package model

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestOutsideIPv4(t *testing.T) {
	for ranges, want := range map[string]string{
		"":                               "0.0.0.0/0",
		"0.0.0.0/0":                      "",
		"fd00::/8":                       "0.0.0.0/0",
		"0.0.0.0/1":                      "128.0.0.0/1",
		"128.0.0.0/2 0.0.0.0/1":          "192.0.0.0/2",
		"64.0.0.0/2 64.0.0.0/8 fd00::/8": "0.0.0.0/2 128.0.0.0/1",
		"0.0.0.0/1 128.0.0.0/1":          "",
	} {
		var in []netip.Prefix
		for _, text := range strings.Fields(ranges) {
			in = append(in, netip.MustParsePrefix(text))
		}
		var got []string
		for p := range OutsideIPv4(in) {
			got = append(got, p.String())
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %q, want %q", ranges, got, want)
		}
	}
	for _, ip := range []string{"255.255.255.255/32", "10.0.0.1/32"} {
		if n := len(slices.Collect(OutsideIPv4([]netip.Prefix{netip.MustParsePrefix(ip)}))); n != 32 {
			t.Errorf("%s: %d prefixes outside, want 32", ip, n)
		}
	}
	for range OutsideIPv4([]netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}) { // a caller may stop early
		break
	}
}
