package realvpp

import (
	"testing"
	"time"

	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vppagent/cost"
)

// TestVPPOutsideInterfaceCost shows what VPP takes for an interface that becomes outside when 1,000 mappings exist already, as a pod's does that is
// new, or whose interface a CNI makes after a restart of VPP. VPP notes each mapping with the interface, and searches all notes for each
// (nat44_ed_get_fib_entry_reg). It fails when VPP does that no longer: docs/stalls.md and ADR 20 then name a limit that is gone. It also shows what
// the feature of an interface with both roles takes without the role of outside (docs/stalls.md, BUGS).
func TestVPPOutsideInterfaceCost(t *testing.T) {
	w := openLoaded(t, 0, append(each(loadService), each(func(i int) event.Change { return loadSlice(i, 0) })...)...)
	w.stop()
	details, err := w.l.dump(&nat44_ed.Nat44InterfaceDump{}) // the guard has to know the roles
	w.check(err)
	var pods []interface_types.InterfaceIndex
	for _, d := range details {
		if i := d.(*nat44_ed.Nat44InterfaceDetails).SwIfIndex; i >= w.l.index["pod-evil/many-0"] {
			pods = append(pods, i)
		}
	}
	var took, removed []time.Duration
	role := func(add bool, i interface_types.InterfaceIndex) time.Duration {
		return w.took(&nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: add, SwIfIndex: i})
	}
	for _, i := range pods { // as if it were new
		role(false, i)
		took = append(took, role(true, i))
	}
	for _, i := range pods {
		removed = append(removed, role(false, i))
	}
	for _, n := range []int{0, 9, 49, len(took) - 1} {
		t.Logf("%d interfaces that became outside after %d mappings: %s for the last, and %s to remove its role", n+1, loadServices, ms(took[n]), ms(removed[len(removed)-1-n]))
	}
	// The feature of both roles without the role of outside: VPP notes nothing.
	swap := func(name string, on bool, i interface_types.InterfaceIndex) time.Duration {
		return w.took(&feature.FeatureEnableDisable{SwIfIndex: i, Enable: on, ArcName: "ip4-unicast", FeatureName: name})
	}
	var swapped []time.Duration
	for _, i := range pods {
		swapped = append(swapped, swap("nat-pre-in2out", false, i)+swap("nat44-ed-classify", true, i))
	}
	last := median(swapped[len(swapped)-10:])
	t.Logf("the feature of both roles alone: %s for the first, %s for the last", ms(median(swapped[:10])), ms(last))
	if role := median(took[len(took)-10:]); last > role/5 {
		t.Errorf("the feature of both roles alone takes %s, the role %s", ms(last), ms(role))
	}
	if first, estimate := median(took[:3]), cost.For(w.l.plain.conn.State().Version).OutsideInterface(loadServices); first > natCostRatio*estimate || estimate > natCostRatio*first {
		t.Errorf("%s for the first, estimated %s", first, estimate)
	}
	if first, last := median(took[:10]), median(took[len(took)-10:]); last < 5*first {
		t.Errorf("%s for the first, %s for the last", first, last)
	}
}
