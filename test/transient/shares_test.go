package transient_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// padding is how many changes use up the share of a namespace in a transaction, whatever it is (plugins/controller: 4,096 at 16 for a change).
const padding = 300

// TestSharesMakeStatesOfObjects: a namespace has used up its share of a transaction, so its changes wait for the next ones (ADR 19), and the other changes of
// the same update do not. A packet that passes meanwhile passes before the update, after it, or in a cluster that has the changes in that order: the
// others, and then those of the namespace, one by one.
func TestSharesMakeStatesOfObjects(t *testing.T) {
	n := oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](6, 6))
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	seeds := []uint64{32, 50} // there a new pod once had the lists of the former pod with its address
	if n == 1 {
		seeds = nil
	}
	for i := range n {
		seeds = append(seeds, first+i)
	}
	parts, between := 0, 0
	for _, seed := range seeds {
		p, b := growShares(t, seed)
		parts, between = parts+p, between+b
	}
	t.Logf("seeds %v: %d updates in several transactions; %d packets passed in states between them only", seeds, parts, between)
	if parts == 0 {
		t.Error("no update was divided")
	}
}

func growShares(t *testing.T, seed uint64) (parts, between int) {
	w := generate.NewWorld(seed, generate.AllKinds())
	c, err := newCluster(w.Objects(), seed)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	defer c.close()
	rng := rand.New(rand.NewPCG(seed, 5))
	for step := range steps {
		before := slices.Clone(w.Objects())
		asked := probes(w, before)
		for range 3 {
			w.Step()
		}
		w.StepServices()
		after := slices.Clone(w.Objects())
		asked = append(asked, probes(w, after)...)
		list, err := hear.All(generate.Since(before, after))
		if err != nil {
			t.Fatal(err)
		}
		busy := busiest(list)
		order := slices.Clone(c.names)
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for i, name := range order {
			looks := c.shared(t, name, busy, step, list, asked)
			if looks.txns > 1 {
				parts++
			}
			for _, s := range looks.holes {
				if !inParts(t, order[:i+1], busy, before, list, looks.probes[s.probe], s.arrival, seed) {
					t.Errorf("seed %d step %d, %s waits: %s", seed, step, busy, looks.describe(s))
					return parts, between
				}
				between++
			}
		}
		c.know(list)
	}
	return parts, between
}

// busiest returns the namespace with most changes.
func busiest(list []event.Change) (most string) {
	count := map[string]int{}
	for _, ch := range list {
		if ns := ch.Ref.Namespace; ns != "" {
			if count[ns]++; count[ns] > count[most] || count[ns] == count[most] && ns < most {
				most = ns
			}
		}
	}
	return most
}

// shared feeds an agent an update in which a namespace uses up its share before its other changes.
func (c *cluster) shared(t *testing.T, name, busy string, step int, list []event.Change, asked []probe) *watch {
	t.Helper()
	n := c.nodes[name]
	fresh, err := n.plumb(list)
	if err != nil {
		t.Fatal(err)
	}
	update := &event.Update{Source: source}
	for i := range padding {
		svc := &model.Service{ID: model.ServiceID{Namespace: busy, Name: fmt.Sprintf("padding-%d-%d", step, i)}}
		update.Changes = append(update.Changes, event.Change{Ref: svc.Ref(), Object: svc})
	}
	update.Changes = append(update.Changes, list...)
	w := newWatch(c, n, asked, fresh, goneDoors(list), nil, false)
	w.dead = c.dead(list)
	if err := n.agent.Feed(context.Background(), update); err != nil {
		t.Fatal(err)
	}
	w.holes = w.end()
	return w
}

// inParts reports whether a packet arrives in a cluster in which the last of some nodes has the other changes and some of the first ones of the namespace,
// and the nodes before it have all changes.
func inParts(t *testing.T, nodes []string, busy string, before []policy.Object, list []event.Change, p probe, a arrival, seed uint64) bool {
	t.Helper()
	other, err := newCluster(before, seed)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	feed := func(at string, changes ...event.Change) {
		if err := other.nodes[at].agent.Feed(context.Background(), &event.Update{Source: source, Changes: changes}); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range nodes {
		if _, err := other.nodes[at].plumb(list); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range nodes[:len(nodes)-1] {
		feed(at, list...)
	}
	other.know(list)
	name := nodes[len(nodes)-1]
	waits := func(ch event.Change) bool { return ch.Ref.Namespace == busy }
	feed(name, slices.DeleteFunc(slices.Clone(list), waits)...)
	for _, ch := range list {
		if slices.Contains(other.arrivals(&p), a) {
			return true
		}
		if waits(ch) {
			feed(name, ch)
		}
	}
	return false
}
