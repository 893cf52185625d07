package realvpp

import (
	"slices"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/feature"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vppagent/cost"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// mostOfRole bounds VPP's time for the requests that give a pod's interface NAT44: docs/stalls.md has the figures.
const mostOfRole = 3 * time.Millisecond

// TestVPPOutsideInterfaceCost shows what VPP takes for NAT44 on an interface when 1,000 mappings exist already, as a pod's does that is new, or whose
// interface a CNI makes after a restart of VPP. The agent gives it the role inside and the node of both roles. The role outside would take long: VPP
// notes each mapping with the interface, and searches all notes for each (nat44_ed_get_fib_entry_reg). The test fails when VPP does that no longer:
// the agent then needs no other arrangement.
func TestVPPOutsideInterfaceCost(t *testing.T) {
	realVPP(t, "measures the time of VPP's main thread")
	w := openLoaded(t, 0, append(each(loadService), each(func(i int) event.Change { return loadSlice(i, 0) })...)...)
	w.stop()
	details, err := w.l.dump(&nat44_ed.Nat44InterfaceDump{}) // the guard has to know the roles
	w.check(err)
	var pods []interface_types.InterfaceIndex
	for _, d := range details {
		if d := d.(*nat44_ed.Nat44InterfaceDetails); d.SwIfIndex >= w.l.index["pod-evil/many-0"] {
			pods = append(pods, d.SwIfIndex)
			if d.Flags != nat_types.NAT_IS_INSIDE {
				t.Fatalf("the agent gave interface %d the roles %v", d.SwIfIndex, d.Flags)
			}
		}
	}
	if len(pods) < loadPods {
		t.Fatalf("%d interfaces of pods with NAT44, want %d", len(pods), loadPods)
	}
	if nodes := median(w.nodesShown()); nodes > mostOfRole/10 {
		t.Errorf("%s to show the nodes of one interface, which the agent asks for after a restart", ms(nodes))
	} else {
		t.Logf("%s to show the nodes of one interface", ms(nodes))
	}
	sum := func(list ...api.Message) (all time.Duration) {
		for _, m := range list {
			all += w.took(m)
		}
		return all
	}
	role := func(add bool, flag nat_types.NatConfigFlags, i interface_types.InterfaceIndex) api.Message {
		return &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: add, Flags: flag, SwIfIndex: i}
	}
	node := func(on bool, name string, i interface_types.InterfaceIndex) api.Message {
		return &feature.FeatureEnableDisable{SwIfIndex: i, Enable: on, ArcName: "ip4-unicast", FeatureName: name}
	}
	const both, one, in, out = "nat44-ed-classify", "nat-pre-in2out", nat_types.NAT_IS_INSIDE, nat_types.NAT_IS_OUTSIDE
	var took, removed, roles, rolesRemoved []time.Duration
	for _, i := range pods { // as if all were removed
		removed = append(removed, sum(node(false, both, i), role(false, in, i)))
	}
	for _, i := range pods { // and new
		took = append(took, sum(role(true, in, i), node(false, one, i), node(true, both, i)))
	}
	for _, i := range pods { // both roles, as earlier agents arranged it
		sum(node(false, both, i))
		roles = append(roles, sum(role(true, out, i)))
	}
	for _, i := range pods {
		rolesRemoved = append(rolesRemoved, sum(role(false, out, i)))
	}
	for _, n := range []int{0, 9, 49, len(took) - 1} {
		t.Logf("interface %d after %d mappings: %s, with both roles %s", n+1, loadServices, ms(took[n]), ms(roles[n]))
	}
	last := median(took[len(took)-10:])
	t.Logf("median of 10: %s for the first, %s for the last; with both roles %s and %s", ms(median(took[:10])), ms(last), ms(median(roles[:10])), ms(median(roles[len(roles)-10:])))
	t.Logf("removal: median %s, longest %s; with both roles %s and %s", ms(median(removed)), ms(slices.Max(removed)), ms(median(rolesRemoved)), ms(slices.Max(rolesRemoved)))
	if last > mostOfRole || median(removed) > mostOfRole {
		t.Errorf("%s for the last, and %s to remove, want %s at most", ms(last), ms(median(removed)), ms(mostOfRole))
	}
	if first, estimate := median(roles[:3]), cost.For(w.l.plain.conn.State().Version).OutsideInterface(loadServices); first > natCostRatio*estimate || estimate > natCostRatio*first {
		t.Errorf("%s for the first with both roles, estimated %s", first, estimate)
	}
	if first, last := median(roles[:10]), median(roles[len(roles)-10:]); last < 5*first {
		t.Errorf("both roles: %s for the first, %s for the last", first, last)
	}
}

// nodesShown are the times to show the nodes of each interface.
func (w *loaded) nodesShown() (took []time.Duration) {
	w.t.Helper()
	ifs, err := w.l.dump(&interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
	w.check(err)
	for _, d := range ifs {
		took = append(took, w.took(descriptor.ShowFeatures(descriptor.FixedText(d.(*interfaces.SwInterfaceDetails).InterfaceName))))
	}
	return took
}
