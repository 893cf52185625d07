package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// everyDay is how many seeds there are for each seed of a whole day.
const everyDay = 5

// rechecks are the periods of rechecks of a day's agents; 0: none.
var rechecks = []time.Duration{0, 30 * time.Minute, time.Hour, 3 * time.Hour}

// Factors by which a day's windows and faults are longer than those of other seeds.
var (
	longerWindows = []time.Duration{1, 1, 10, 100} // up to 1 h 40 min
	longerFaults  = []time.Duration{1, 1, 20, 400} // up to 2 h 13 min, and up to 7 h 47 min of those that last 70 s
)

// Periods of a day. They are longer than those of other seeds, so that a day does not consist of them.
const (
	dayProbe   = time.Minute     // of pings of an idle VPP, instead of 1 s
	dayTTL     = 2 * time.Minute // of the lease of statuses in etcd (--etcd-status-ttl), instead of 30 s
	dayWatches = 60              // times as long as clients ask for watches last: 5 to 10 h. A bookmark each hour
)

// DrawDay draws the schedule of a seed as a whole day: its rounds begin after pauses of hours, windows and faults may last for hours, and agents compare VPP with
// the desired state less often, or never. Agents without rechecks have no faults that rechecks alone repair.
func DrawDay(seed uint64, only ...Kind) Schedule {
	s := Draw(seed, only...)
	rng := rand.New(rand.NewPCG(seed, 27))
	s.Recheck = rechecks[rng.IntN(len(rechecks))]
	for range s.Rounds {
		s.Pauses = append(s.Pauses, time.Duration(rng.Int64N(int64(2*24*time.Hour)/int64(s.Rounds))))
	}
	windows := make([]time.Duration, s.Rounds)
	for i := range windows {
		windows[i] = longerWindows[rng.IntN(len(longerWindows))]
	}
	for i := range s.Actions {
		a := &s.Actions[i]
		a.At *= windows[a.Round]
		a.For *= longerFaults[rng.IntN(len(longerFaults))]
	}
	s.Actions = slices.DeleteFunc(s.Actions, func(a Action) bool { return s.Recheck == 0 && needsRecheck(a) })
	return s
}

// needsRecheck reports whether an agent without rechecks would not repair what an action leaves.
func needsRecheck(a Action) bool { return a.Kind == DriftVPP || a.Kind == LoseDumps }

// IsDay reports whether the schedule is a whole day.
func (s Schedule) IsDay() bool { return len(s.Pauses) > 0 }

// quietAfter is the time without faults after a round: of a day, longer if something happened that rechecks repair. A slow answer pauses them for two rounds, and
// the next round finds everything.
func (s Schedule) quietAfter(round int) time.Duration {
	if s.IsDay() && slices.ContainsFunc(s.Actions, func(a Action) bool { return a.Round == round && needsRecheck(a) }) {
		return quiet + 3*s.Recheck
	}
	return quiet
}

// longestAbsence is more than any agent or trap of a day takes.
const longestAbsence = 12 * time.Hour

// awaitAgents waits until what is left of the traps has happened and all agents run.
func (r *run) awaitAgents() {
	for began := time.Now(); time.Since(began) < longestAbsence; {
		time.Sleep(5 * time.Second)
		synctest.Wait() // what a trap began at this moment, or a client's request before, has ended the agent
		if !slices.ContainsFunc(r.nodes, func(n *node) bool {
			l := n.present()
			return n.link.trapped() || l == nil || l.dead.Load() // the end of a killed agent takes a while with a slow etcd
		}) {
			return
		}
	}
}

func (l *link) trapped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.traps) > 0
}

// idle lets a time pass in which nothing happens, and in which no agent may change a VPP or get out of sync. VPPs that nothing changes still are what the checks
// before it compared.
func (r *run) idle(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	for _, n := range r.nodes {
		n.sim.ClearLog()
	}
	time.Sleep(d)
	synctest.Wait()
	err := r.broken()
	for _, n := range r.nodes {
		switch {
		case err != nil:
		case n.sim.Writes() != 0:
			err = fmt.Errorf("the agent wrote %d messages: %v", n.sim.Writes(), n.sim.Log())
		default:
			if err = n.status(); err == nil && n.etcd != nil {
				err = n.etcd.Check(n.sim.Dump())
			}
		}
		if err != nil {
			return fmt.Errorf("%s: during %s in which nothing happens: %w", n.name, d, err)
		}
	}
	return r.checkGoroutines()
}

func TestSameSeedDrawsTheSameDay(t *testing.T) {
	seen := map[time.Duration]bool{}
	for seed := range uint64(100) {
		s, others := DrawDay(seed), Draw(seed)
		if !s.IsDay() || others.IsDay() || s.String() != DrawDay(seed).String() || len(s.Pauses) != s.Rounds {
			t.Fatalf("seed %d draws no day, or two", seed)
		}
		seen[s.Recheck] = true
		if !slices.IsSortedFunc(s.Actions, inTime) || s.Versions != others.Versions {
			t.Errorf("seed %d: actions in disorder, or other objects:\n%s", seed, s)
		}
		for _, a := range s.Actions {
			if needsRecheck(a) && (s.Recheck == 0 || s.quietAfter(a.Round) <= 3*s.Recheck) {
				t.Errorf("seed %d: nothing repairs %s", seed, a)
			}
		}
		if len(s.Actions) < len(others.Actions) && s.Recheck != 0 {
			t.Errorf("seed %d lacks actions", seed)
		}
	}
	if len(seen) != len(rechecks) {
		t.Errorf("periods of rechecks: %v", seen)
	}
}

// A time in which nothing happens is not over without a word if a VPP is changed in it, or an agent is away at its end.
func TestIdleFinds(t *testing.T) {
	for name, spoil := range map[string]func(*run){
		"a list is detached": func(r *run) {
			if err := detachLists(r); err != nil {
				r.failf("%w", err)
			}
		},
		"an agent is away": func(r *run) {
			n := r.nodes[0]
			n.link.setFault(func(*link) { n.killAgent(time.Hour, nil) })
		},
		"": nil,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := DrawDay(5)
				s.Recheck = 0
				r := newRun(s, Config{Dir: dir})
				end, err := r.begin()
				defer end()
				if err != nil {
					t.Fatal(err)
				}
				if spoil != nil {
					time.AfterFunc(10*time.Minute, func() { spoil(r) })
				}
				if err := r.idle(20 * time.Minute); (err != nil) != (spoil != nil) {
					t.Error(err)
				}
			})
		})
	}
}
