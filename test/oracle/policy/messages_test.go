package policy_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// How many random worlds a test grows: CONTIV_CASES, or enough for a quick look. CONTIV_SEED repeats one. Each is a cluster
// when it is made, and another one after each step.
const (
	messageWorlds = 500
	stepsPerWorld = 3
	contents      = 4 // ports per pair
)

// TestMessages grows random clusters and compares what the messages of the calculation graph say with the specifications.
func TestMessages(t *testing.T) {
	grow(t, messageWorlds, growMessages)
}

// grow grows worlds on all cores until one fails.
func grow(t *testing.T, worlds uint64, one func(t *testing.T, seed uint64) (flows int)) {
	n := oracle.Setting(t, "CONTIV_CASES", pace.Fewer(worlds, 15))
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	var next, flows atomic.Uint64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < n && !t.Failed(); i = next.Add(1) - 1 {
				seed := first + i
				flows.Add(uint64(one(t, seed)))
				if t.Failed() {
					t.Logf("repeat with CONTIV_SEED=%d CONTIV_CASES=1", seed)
				}
			}
		})
	}
	wait.Wait()
	t.Logf("seeds %d to %d: %d clusters, %d flows", first, first+n-1, n*(stepsPerWorld+1), flows.Load())
}

func nodesOf(objects []policy.Object) (names []string, own map[string][]string) {
	own = map[string][]string{}
	for _, o := range objects {
		if n, ok := o.(*corev1.Node); ok {
			names = append(names, n.Name)
			for _, a := range n.Status.Addresses {
				own[n.Name] = append(own[n.Name], a.Address)
			}
		}
	}
	return names, own
}

func allOf(objects []policy.Object) []generate.Change {
	var out []generate.Change
	for _, o := range objects {
		out = append(out, generate.Change{Key: policy.KeyOf(o), Object: o})
	}
	return out
}

func growMessages(t *testing.T, seed uint64) (flows int) {
	w := generate.NewWorld(seed, generate.AllKinds())
	names, own := nodesOf(w.Objects())
	g := newGraphs(names)
	changes := allOf(w.Objects())
	for step := 0; ; step++ {
		list, err := hear.All(changes)
		if err != nil {
			t.Errorf("seed %d step %d: %v", seed, step, err)
			return flows
		}
		if err := g.apply(list); err != nil {
			t.Errorf("seed %d step %d: %v", seed, step, err)
		}
		c, err := policy.Read(w.Objects())
		if err != nil {
			t.Errorf("seed %d step %d: %v", seed, step, err)
			return flows
		}
		for _, f := range w.Flows(contents) {
			flows++
			want := c.Judge(&f)
			if want.Always {
				continue
			}
			if got := g.allows(&f, own); got != want.Allowed {
				t.Errorf("seed %d step %d: %v: allowed %v, should be %v: %s", seed, step, f, got, want.Allowed, want.Why)
				explain(t, w.Objects(), func(objects []policy.Object) string { return messagesDiffer(objects, f) })
				return flows
			}
		}
		if step == stepsPerWorld {
			return flows
		}
		changes = w.Step()
	}
}

// messagesDiffer compares a flow in a cluster that starts with all objects.
func messagesDiffer(objects []policy.Object, f policy.Flow) string {
	if !factsOf(objects).whole(f) {
		return ""
	}
	names, own := nodesOf(objects)
	g := newGraphs(names)
	list, err := hear.All(allOf(objects))
	if err != nil || g.apply(list) != nil {
		return ""
	}
	c, err := policy.Read(objects)
	if err != nil {
		return ""
	}
	if want, got := c.Judge(&f), g.allows(&f, own); want.Allowed != got {
		return fmt.Sprintf("%v: allowed %v, should be %v: %s", f, got, want.Allowed, want.Why)
	}
	return ""
}

// explain prints the smallest cluster in which the difference shows.
func explain(t *testing.T, objects []policy.Object, differs func([]policy.Object) string) {
	if differs(objects) == "" {
		t.Errorf("not so in a cluster that is there all at once: it is the way that matters. At the end it was\n%s", policy.YAML(objects))
		return
	}
	objects = generate.Shrink(objects, func(o []policy.Object) bool { return differs(o) != "" })
	t.Errorf("in short: %s\n%s", differs(objects), policy.YAML(objects))
}
