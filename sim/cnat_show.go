package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/sim/cnat"
	"github.com/contiv-agent/contiv-agent/sim/policer"
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
	input, output := v.nat.Arc(f.index).Nodes()
	nat := map[string][]string{"nat44-ed": input, "nat44-ed-output": output}
	for id, arc := range arcNames() {
		var nodes []string
		for _, n := range v.arcs[id] {
			k := featureKey{arcID(id), n.name, f.index}
			times := v.features.times[k]
			if times == 0 && n.on(f.index) && !v.features.off[k] {
				times = 1
			}
			if nat[n.name] != nil {
				nodes = append(nodes, nat[n.name]...)
			} else {
				nodes = append(nodes, slices.Repeat([]string{n.name}, times)...)
			}
		}
		limited := v.features.policers.On(policer.Place{Interface: f.index})
		if limited && strings.HasSuffix(arc, "-unicast") && !v.cfg.older(26, 6) {
			nodes = append(nodes, "policer-input")
		}
		if nodes == nil {
			nodes = []string{"none configured"}
		}
		fmt.Fprintf(&b, "\n%s:\n  %s\n", arc, strings.Join(nodes, "\n  "))
	}
	if v.features.policers.On(policer.Place{Interface: f.index}) && v.cfg.older(26, 6) {
		b.WriteString("\ndevice-input:\n  policer-input\n")
	}
	return b.String()
}
