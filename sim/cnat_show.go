package sim

import (
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/sim/cnat"
)

// showSNATPolicy returns the lines of VPP's `show cnat snat-policy` (24.06), without those about memory.
func (v *VPP) showSNATPolicy() string {
	var b strings.Builder
	v4, v6, _ := v.cnat.SNATAddresses()
	fmt.Fprintf(&b, "Source NAT\n  ip4: %s;0\n  ip6: %s;0\n\nExcluded prefixes:\n  Hash table 'snat prefixes'\n", v4, v6)
	for i, p := range v.cnat.Excluded() {
		fmt.Fprintf(&b, "[%d]: heap offset %d, len 1, refcnt 1, linear 0\n    0: %s\n", i, 1<<20+i*128, p)
	}
	fmt.Fprintf(&b, "    %d active elements\n\n", len(v.cnat.Excluded()))
	for t, name := range []string{"Included v4", "Included v6", "k8s pod", "k8s host"} {
		fmt.Fprintf(&b, "\n%s interfaces:\n", name)
		for _, swIf := range v.cnat.InTable(cnat.Table(t)) {
			name := "DELETED"
			if f := v.ifs.get(swIf); f != nil {
				name = f.name
			}
			fmt.Fprintf(&b, "  %s\n", name)
		}
	}
	return b.String()
}

// showFeatures returns VPP's `show interface features` for the sim's arcs; a node that is on an arc twice has two lines.
func (v *VPP) showFeatures(f *iface) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Feature paths configured on %s...\n", f.name)
	for id, arc := range arcNames() {
		fmt.Fprintf(&b, "\n%s:\n", arc)
		any := false
		input, output := v.nat.Nodes(f.index)
		nat := map[string][]string{"nat44-ed": input, "nat44-ed-output": output}
		for _, n := range v.arcs[id] {
			for _, name := range nat[n.name] {
				any = true
				fmt.Fprintf(&b, "  %s\n", name)
			}
			if nat[n.name] != nil {
				continue
			}
			times := v.features.times[featureKey{arcID(id), n.name, f.index}]
			if times == 0 && n.on(f.index) && !v.features.off[featureKey{arcID(id), n.name, f.index}] {
				times = 1
			}
			for range times {
				any = true
				fmt.Fprintf(&b, "  %s\n", n.name)
			}
		}
		if !any {
			b.WriteString("  none configured\n")
		}
	}
	return b.String()
}
