package transient_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// TestNoTransientHoleWhenDivided: the agent divides each transaction after each interface, and the next change overtakes the
// remaining parts. A packet that arrives meanwhile arrives before both changes, after both, or after the first one only.
func TestNoTransientHoleWhenDivided(t *testing.T) {
	n := oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](8, 8))
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	overtaken := 0
	for seed := first; seed < first+n && !t.Failed(); seed++ {
		overtaken += growDivided(t, seed)
	}
	if t.Logf("%d changes overtook another one", overtaken); overtaken == 0 && n > 1 {
		t.Error("nothing was divided")
	}
}

func growDivided(t *testing.T, seed uint64) (overtaken int) {
	w := generate.NewWorld(seed, generate.AllKinds())
	c, err := newDividedCluster(w.Objects(), seed)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	defer c.close()
	rng := rand.New(rand.NewPCG(seed, 4))
	for step := range pace.Fewer(steps, 4) {
		stages := [][]policy.Object{slices.Clone(w.Objects())}
		asked := probes(w, stages[0])
		for range 3 {
			w.Step()
			stages = append(stages, slices.Clone(w.Objects()))
			asked = append(asked, probes(w, stages[len(stages)-1])...)
		}
		order := slices.Clone(c.names)
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, name := range order {
			looks, divided := c.overtake(t, name, stages, asked)
			overtaken += divided
			for _, s := range looks.holes {
				if !c.between(t, name, stages, looks.probes[s.probe], s.arrival, seed) {
					t.Errorf("seed %d step %d: %s", seed, step, looks.describe(s))
					return overtaken
				}
			}
		}
		all, err := hear.All(generate.Since(stages[0], stages[len(stages)-1]))
		if err != nil {
			t.Fatal(err)
		}
		c.know(all)
	}
	return overtaken
}

// updates are the changes from stage to stage.
func updates(t *testing.T, stages [][]policy.Object) (out []event.Event, all []event.Change) {
	for i := range stages[1:] {
		list, err := hear.All(generate.Since(stages[i], stages[i+1]))
		if err != nil {
			t.Fatal(err)
		}
		out, all = append(out, &event.Update{Source: source, Changes: list}), append(all, list...)
	}
	return out, all
}

// overtake takes one node from stage to stage, each before VPP has all of the previous one.
func (c *cluster) overtake(t *testing.T, name string, stages [][]policy.Object, asked []probe) (*watch, int) {
	t.Helper()
	n := c.nodes[name]
	events, all := updates(t, stages)
	fresh, err := n.plumb(all)
	if err != nil {
		t.Fatal(err)
	}
	w := newWatch(c, n, asked, fresh, goneDoors(all), nil, false)
	w.dead = c.dead(all)
	divided := 0
	n.committed = func(ev *event.Committed) {
		if len(ev.Left) > 0 {
			divided++
		}
	}
	if err := n.agent.Feed(context.Background(), events...); err != nil {
		t.Fatal(err)
	}
	w.holes = w.end()
	return w, divided
}

// between reports whether a packet arrives in a cluster in which the node is at one of the stages in between, and the
// earlier nodes are in the same state as in c.
func (c *cluster) between(t *testing.T, name string, stages [][]policy.Object, p probe, a arrival, seed uint64) bool {
	for _, stage := range stages[1 : len(stages)-1] {
		other, err := newDividedCluster(stages[0], seed)
		if err != nil {
			t.Fatal(err)
		}
		events, all := updates(t, [][]policy.Object{stages[0], stage})
		for _, n := range other.names {
			if n != name {
				continue
			}
			if _, err := other.nodes[n].plumb(all); err != nil {
				t.Fatal(err)
			}
			if err := other.nodes[n].agent.Feed(context.Background(), events...); err != nil {
				t.Fatal(err)
			}
		}
		other.know(all)
		found := slices.Contains(other.arrivals(&p), a)
		other.close()
		if found {
			return true
		}
	}
	return false
}
