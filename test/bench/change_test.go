package bench

import (
	"runtime"
	"strings"
	"testing"
)

// TestOneEndpointIsTwoMessages changes one endpoint among 20,000: VPP sees two messages, whatever the number of services, and the
// agent allocates the same for it.
func TestOneEndpointIsTwoMessages(t *testing.T) {
	few, many := follow(t, 20), follow(t, 2000)
	if many > few*1.5 {
		t.Errorf("one change allocates %.0f times among 2,000 services, %.0f times among 20", many, few)
	}
}

// follow lets an endpoint come and go, and returns how often one change allocates, VPP's share included.
func follow(t *testing.T, services int) float64 {
	t.Helper()
	const changes = 50
	c := newCluster(services, perService, nil)
	v := startSim(t, c)
	r := run(t, v.dial, nil)
	defer r.stop()
	r.sync(c.changes())
	toggled := c.toggled(services / 2)
	for n := range 4 { // the agent looks for interfaces once more after the first sync
		r.change(put(toggled[n%2]))
	}
	v.ClearLog()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n := range changes {
		r.change(put(toggled[n%2]))
	}
	runtime.ReadMemStats(&after)
	log := v.Log()
	if len(log) != 2*changes { // the endpoint takes the place of a pad, or leaves it to one
		t.Errorf("%d services: %d messages for %d changes", services, len(log), changes)
	}
	for _, rec := range log {
		if rec.Name != "nat44_lb_static_mapping_add_del_local" || !strings.Contains(rec.Text, clusterIP(services/2).String()) {
			t.Fatalf("%d services: an endpoint changed, and VPP got %s", services, rec)
		}
	}
	return float64(after.Mallocs-before.Mallocs) / changes
}
