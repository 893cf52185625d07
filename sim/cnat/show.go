package cnat

import (
	"fmt"
	"strings"
)

// ShowSNATPolicy returns the lines of VPP's `show cnat snat-policy` (24.06), without those about memory. Name returns the name of an interface, "" for one that was deleted.
func ShowSNATPolicy(e *Engine, name func(uint32) string) string {
	var b strings.Builder
	v4, v6, _ := e.SNATAddresses()
	fmt.Fprintf(&b, "Source NAT\n  ip4: %s;0\n  ip6: %s;0\n\nExcluded prefixes:\n  Hash table 'snat prefixes'\n", v4, v6)
	for i, p := range e.Excluded() {
		fmt.Fprintf(&b, "[%d]: heap offset %d, len 1, refcnt 1, linear 0\n    0: %s\n", i, 1<<20+i*128, p)
	}
	fmt.Fprintf(&b, "    %d active elements\n\n", len(e.Excluded()))
	for t, title := range []string{"Included v4", "Included v6", "k8s pod", "k8s host"} {
		fmt.Fprintf(&b, "\n%s interfaces:\n", title)
		for _, swIf := range e.InTable(Table(t)) {
			n := name(swIf)
			if n == "" {
				n = "DELETED"
			}
			fmt.Fprintf(&b, "  %s\n", n)
		}
	}
	return b.String()
}
