package sim

import (
	"fmt"
	"slices"
	"strings"
)

// arcID is a feature arc.
type arcID uint8

const (
	ip4Unicast arcID = iota
	ip4Output
	ip6Unicast
	ip6Output
	arcCount
)

// order is the order of the feature nodes on each arc, as `show features verbose` of VPP 24.06 shows it. The nodes of nat44-ed,
// which the engine runs in their order, take one place between reassembly and cnat-snat. A feature is added to newArcs under one of
// these names, and its place follows from here.
func order(a arcID) []string {
	return [arcCount][]string{
		ip4Unicast: {"cnat-input-ip4", "acl-plugin-in-ip4-fa", "ip4-sv-reassembly-feature", "nat44-ed", "cnat-snat-ip4", "abf-input-ip4", "ip4-inacl"},
		ip4Output:  {"ip4-sv-reassembly-output-feature", "nat44-ed-output", "acl-plugin-out-ip4-fa", "cnat-output-ip4", "gso-ip4", "ip4-outacl", "policer-output"},
		ip6Unicast: {"cnat-input-ip6", "cnat-snat-ip6", "acl-plugin-in-ip6-fa", "ip6-inacl"},
		ip6Output:  {"acl-plugin-out-ip6-fa", "cnat-output-ip6", "gso-ip6", "ip6-outacl", "policer-output"},
	}[a]
}

func arcNames() []string { return []string{"ip4-unicast", "ip4-output", "ip6-unicast", "ip6-output"} }

// feature is one kind of node that an interface can have on an arc.
type feature struct {
	name string
	// on reports whether the interface has it.
	on func(swIf uint32) bool
	// run processes a packet; false: the packet has left the arc (dropped, or forwarded elsewhere).
	run func(f *flow) bool
}

// arcs are the features in the order of processing.
type arcs [arcCount][]feature

// newArcs lists the features of the sim.
func newArcs(v *VPP) arcs {
	var a arcs
	a.addFeature(ip4Unicast, feature{name: "nat44-ed", on: func(swIf uint32) bool { return v.nat.Arc(swIf).OnInput() }, run: (*flow).natInput})
	a.addFeature(ip4Output, feature{name: "nat44-ed-output", on: func(swIf uint32) bool { return v.nat.Arc(swIf).OnOutput() }, run: (*flow).natOutput})
	addReassembly(&a, v)
	addACL(&a, v)
	addClassify(&a, v)
	addOptional(&a, v)
	addPolicer(&a, v)
	return a
}

// addFeature puts a feature in its place. It panics for a name without a place.
func (a *arcs) addFeature(id arcID, f feature) {
	place := func(name string) int { return slices.Index(order(id), name) }
	if place(f.name) < 0 {
		panic("sim: no place on the arc for " + f.name)
	}
	i := 0
	for i < len(a[id]) && place(a[id][i].name) < place(f.name) {
		i++
	}
	a[id] = slices.Insert(a[id], i, f)
}

// runArc sends a packet along an arc; false: the packet did not reach the end.
func (a *arcs) runArc(id arcID, swIf uint32, f *flow) bool { return a.runFrom(0, id, swIf, f) }

// runFrom is run from the feature at that place on.
func (a *arcs) runFrom(first int, id arcID, swIf uint32, f *flow) bool {
	for i := first; i < len(a[id]); i++ {
		if f.pause != nil {
			f.pause()
		}
		if n := &a[id][i]; n.on(swIf) && !f.v.features.off[featureKey{id, n.name, swIf}] && !n.run(f) {
			return false
		}
	}
	return true
}

// String lists the arcs.
func (a *arcs) String() string {
	var b strings.Builder
	for id, name := range arcNames() {
		fmt.Fprintf(&b, "%s:\n", name)
		for _, f := range a[id] {
			fmt.Fprintf(&b, "  %s\n", f.name)
		}
	}
	return b.String()
}
