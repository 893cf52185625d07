package limit

import (
	"fmt"
	"strconv"
	"strings"
)

// MatchesBytes reports whether a VPP compares IPv6 prefixes of an ACL by whole bytes. All versions before 25.06 do (found in
// src/plugins/acl/hash_lookup.c of v24.06). An unknown version counts as one that does.
func MatchesBytes(version string) bool {
	year, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	month, _, _ := strings.Cut(rest, "-")
	month, _, _ = strings.Cut(month, ".")
	y, errY := strconv.Atoi(year)
	m, errM := strconv.Atoi(month)
	return errY != nil || errM != nil || y < 25 || y == 25 && m < 6
}

// whyBytes explains why a policy asks for more rules than on other versions.
func whyBytes(version string, bits, bytes int) string {
	if version == "" {
		version = "of unknown version"
	}
	return fmt.Sprintf("VPP %s compares IPv6 prefixes by whole bytes, so it is %d rules instead of the %d from VPP 25.06 on", version, bytes, bits)
}
