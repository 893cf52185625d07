package realvpp

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
)

// moreServices is how many Services appear, and disappear, while no agent runs.
const moreServices = 4000

// TestVPPFirstSyncTraffic has a flow of the victim, one datagram each millisecond, while an agent restarts, and while VPP does, on a node with 100
// pods of a tenant under a policy with a set of 10,000 members, and 1,000 Services of 10 endpoints. While no agent runs, 4,000 Services more appear,
// and disappear, so that the next agent's first sync has to write. The test shows how many datagrams are lost, for how long all are, and the
// longest delay, each beside 3 quiet seconds. It asserts that a restart of the agent loses nothing, and that the flow continues after a restart
// of VPP.
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
	restart := func(name string, objects []event.Change, services int) {
		before := quiet()
		w.stop()
		for len(w.committed) > 0 {
			<-w.committed
		}
		w.objects = objects
		began, busy := time.Now(), w.mainThread()
		w.start()
		w.firstSync()
		for c := (&event.Committed{}); c.Resync != event.Full; {
			if c = <-w.committed; c.Err != nil {
				t.Fatal(c.Err)
			}
		}
		took, d := time.Since(began), w.flow.look()
		w.settle()
		t.Logf("| %s | %s, %s of VPP | %d of %d | %s | %s | %d | %s | quiet: %d of %d | %s | %d | %s |", name, took.Round(time.Millisecond), ms(w.mainThread()-busy), d.lost, d.packets,
			ms(d.gap), ms(d.longest), d.later, ms(d.usual), before.lost, before.packets, ms(before.longest), before.later, ms(before.usual))
		if mappings := strings.Count(w.l.cli("show nat44 static mappings"), "external 10.96."); d.lost > d.packets/100 || mappings < services || mappings > services+1 {
			t.Errorf("%s: %s; VPP has %d mappings", name, d, mappings)
		}
	}
	few, many := w.objects, w.objects
	for i := range moreServices {
		many = append(many, loadService(loadServices+i), loadSlice(loadServices+i, 0))
	}
	for range 3 {
		restart("the agent restarts", few, loadServices)
		restart("4,000 Services more", many, loadServices+moreServices)
		restart("4,000 Services less", few, loadServices)
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
