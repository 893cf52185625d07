package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/sim/policer"
)

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
