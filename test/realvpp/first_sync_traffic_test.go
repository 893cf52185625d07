package realvpp

import (
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
)

// TestVPPFirstSyncTraffic has a flow of the victim, one datagram each millisecond, while an agent restarts, and while VPP does, on a node with 100
// pods of a tenant under a policy with a set of 10,000 members, and 1,000 Services of 10 endpoints. It shows how many datagrams are lost, for how
// long all are, and the longest delay, each beside 3 quiet seconds. It asserts that an agent restart loses nothing, and that the flow continues
// after a restart of VPP.
func TestVPPFirstSyncTraffic(t *testing.T) {
	realVPP(t, "measures the time of VPP's main thread")
	objects := append(append(members(), put(evilPolicy(80))), each(loadService)...)
	objects = append(objects, each(func(i int) event.Change { return loadSlice(i, 0) })...)
	w := openLoaded(t, 0, objects...)
	quiet := func() delayed {
		time.Sleep(3 * time.Second)
		w.flow.look()
		time.Sleep(3 * time.Second)
		return w.flow.look()
	}
	for range 3 {
		before := quiet()
		began, busy := time.Now(), w.mainThread()
		w.stop()
		w.start()
		w.firstSync()
		w.settle()
		took, d := time.Since(began)-700*time.Millisecond, w.flow.look()
		t.Logf("| the agent restarts | %s, %s of VPP | %d of %d | %s | %s | quiet: %d of %d | %s |", took.Round(time.Millisecond), ms(w.mainThread()-busy), d.lost, d.packets,
			ms(d.gap), ms(d.longest), before.lost, before.packets, ms(before.longest))
		if d.lost > d.packets/100 {
			t.Errorf("the agent restarts: %s", d)
		}
	}
	for range 2 {
		before := quiet()
		began := time.Now()
		if err := w.l.restart(); err != nil {
			t.Fatalf("%v; VPP: %v", err, w.l.alive())
		}
		w.prefer()
		made := time.Now()
		if !w.flow.steady(20 * time.Second) {
			t.Fatalf("no datagrams arrive after VPP restarted: %s", w.flow.look())
		}
		open, d := time.Since(made)-steadyFor, w.flow.look()
		w.settle()
		after := w.flow.look()
		t.Logf("| VPP restarts | interfaces after %s, the flow %s later | %d of %d | then %d of %d | %s | %s | quiet: %d of %d | %s |",
			made.Sub(began).Round(time.Millisecond), open.Round(time.Millisecond), d.lost, d.packets, after.lost, after.packets, ms(after.gap), ms(after.longest),
			before.lost, before.packets, ms(before.longest))
	}
}
