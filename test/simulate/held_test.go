package simulate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/test/simulate/apiserver"
)

// While the API server is empty for less than the time of a hold, no agent removes anything from its VPP, also if it starts again meanwhile. If it stays
// empty, the removals pass.
func TestEmptyAnswerIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		empty   time.Duration
		killed  bool
		removes bool
	}{
		"shorter than a hold":           {hold - 5*time.Second, false, false},
		"and agents are killed":         {hold - 5*time.Second, true, false},
		"longer than a hold":            {hold + 5*time.Second, false, true},
		"longer, and agents are killed": {hold + 15*time.Second, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := newRun(Draw(3), Config{Dir: dir, Least: 1})
				end, err := r.begin()
				defer end()
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range r.nodes {
					n.sim.ClearLog()
				}
				r.server.Change(func(f *apiserver.Faults) { f.Empty++ })
				if time.Sleep(5 * time.Second); c.killed {
					for _, n := range r.nodes {
						n.link.setFault(func(*link) { n.killAgent(time.Second, nil) })
					}
				}
				time.Sleep(c.empty - 5*time.Second)
				for _, n := range r.nodes {
					if removes := n.sim.Writes() > 0; removes != c.removes {
						t.Errorf("%s: %d writes; held: %v", n.name, n.sim.Writes(), n.guard.Load().Held())
					}
				}
				r.server.Change(func(f *apiserver.Faults) { f.Empty-- })
				if err := r.rest("the return of the objects", quiet); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
