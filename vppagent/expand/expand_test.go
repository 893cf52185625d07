package expand_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/expand"
)

// Toy kinds: a "list/…" merges its message and the parts of "rule/…" values; a list that is not empty gives a part to "all", which
// has no value without a list; a "base/…" derives "leaf/…" values and properties "has/…". Every state is a string; a state "x y"
// names x and y.
func kinds() []*descriptor.Descriptor {
	compare := func(have, want any) descriptor.Change {
		if have == want {
			return descriptor.Same
		}
		return descriptor.InPlace
	}
	follow := func(prefix string) func(any) []descriptor.Derived {
		return func(state any) (out []descriptor.Derived) {
			for _, name := range strings.Fields(state.(string)) {
				out = append(out, descriptor.Derived{Key: prefix + name, State: state})
			}
			return out
		}
	}
	merge := func(own any, parts []any) any {
		if own != nil {
			parts = append([]any{own}, parts...)
		}
		var names []string
		for _, p := range parts {
			names = append(names, p.(string))
		}
		return strings.Join(names, " ")
	}
	return []*descriptor.Descriptor{
		{Name: "rule", Prefix: "rule/", Compare: compare, Derived: follow("list/")},
		{Name: "list", Prefix: "list/", Compare: compare, Merge: merge, Derived: func(state any) []descriptor.Derived {
			return []descriptor.Derived{{Key: "all", State: state}}
		}},
		{Name: "all", Prefix: "all", Compare: compare, Merge: func(_ any, parts []any) any {
			if len(parts) < 2 {
				return nil
			}
			return fmt.Sprint(len(parts))
		}},
		{Name: "base", Prefix: "base/", Compare: compare, Derived: func(state any) []descriptor.Derived {
			return append(follow("leaf/")(state), descriptor.Derived{Key: "has/" + state.(string)}, descriptor.Derived{Key: "other/kind", State: "of another agent"})
		}},
		{Name: "leaf", Prefix: "leaf/", Compare: compare},
	}
}

func kindOf(key string) *descriptor.Descriptor {
	for _, d := range kinds() {
		if d.Has(key) {
			return d
		}
	}
	return nil
}

// graph records emitted values, as the planner does.
type graph struct {
	set    *expand.Set
	values map[string]expand.Value
}

func newGraph() *graph { return &graph{expand.New(kindOf), map[string]expand.Value{}} }

func (g *graph) apply(v expand.Value) {
	switch {
	case v.Unchanged:
	case v.State == nil && v.Base == "":
		delete(g.values, v.Key)
	default:
		g.values[v.Key] = v
	}
}

func (g *graph) put(key string, state any) { g.set.Put(key, state, false, g.apply) }

func (g *graph) lines() (out []string) {
	for _, key := range slices.Sorted(maps.Keys(g.values)) {
		v := g.values[key]
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s=%v %s", key, v.State, v.Base)))
	}
	return out
}

func (g *graph) want(t *testing.T, lines ...string) {
	t.Helper()
	if diff := cmp.Diff(lines, g.lines()); diff != "" {
		t.Errorf("values: %s", diff)
	}
}

func TestPartsMakeValues(t *testing.T) {
	g := newGraph()
	g.put("rule/a", "x y")
	g.want(t, "all=2", "list/x=x y", "list/y=x y", "rule/a=x y")
	g.put("rule/b", "y")
	g.put("list/y", "own")
	g.want(t, "all=2", "list/x=x y", "list/y=own x y y", "rule/a=x y", "rule/b=y")
	g.put("rule/a", "y")
	g.want(t, "list/y=own y y", "rule/a=y", "rule/b=y")
	for _, key := range []string{"rule/a", "rule/b", "list/y"} {
		g.put(key, nil)
	}
	g.want(t)
}

func TestDerivedValuesGoWithTheirBase(t *testing.T) {
	g := newGraph()
	g.put("base/a", "x y")
	g.want(t, "base/a=x y", "has/x y=<nil> base/a", "leaf/x=x y base/a", "leaf/y=x y base/a")
	g.put("base/a", "y")
	g.want(t, "base/a=y", "has/y=<nil> base/a", "leaf/y=y base/a")
	g.put("base/b", "y") // takes over the leaf
	g.put("base/a", nil)
	g.want(t, "base/b=y", "has/y=<nil> base/b", "leaf/y=y base/b")
	g.put("base/b", nil)
	g.want(t)
}

// A rule that does not compile still names its lists, which stay closed to everything else; a base that does not compile has no leaves.
func TestBrokenValuesGiveTheirPartsOnly(t *testing.T) {
	g := newGraph()
	g.put("rule/a", "x")
	g.put("base/a", "x")
	g.set.Put("rule/a", "x", true, g.apply)
	g.set.Put("base/a", "x", true, g.apply)
	g.want(t, "list/x=x")
	g.set.Put("rule/a", nil, true, g.apply)
	g.want(t)
}

func TestTheAgentGivesParts(t *testing.T) {
	g := newGraph()
	g.set.Give("list/x", "closed", g.apply)
	g.set.Give("leaf/x", "no kind that merges has this key", func(expand.Value) {})
	g.want(t, "list/x=closed")
	g.put("rule/a", "x")
	g.want(t, "list/x=closed x", "rule/a=x")
	g.set.Give("list/x", "closed", func(v expand.Value) { t.Errorf("nothing changed, and %+v was emitted", v) })
	if g.set.Given("list/x") != "closed" || g.set.Said("list/x") {
		t.Error("the part is the agent's, and no message says anything")
	}
	g.set.Give("list/x", nil, g.apply)
	g.want(t, "list/x=x", "rule/a=x")
}

// The values that follow depend neither on the order of states nor on earlier states. A clone does not change with the original.
func TestValuesDoNotDependOnTheWay(t *testing.T) {
	keys := []string{"rule/a", "rule/b", "list/x", "list/y", "base/a", "base/b", "leaf/z"}
	states := map[string][]any{"rule": {nil, "x", "y", "x y", "y z"}, "list": {nil, "own", "x"}, "base/a": {nil, "x", "x y"}, "base/b": {nil, "p", "p q"}, "leaf": {nil, "z"}}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		g, last := newGraph(), map[string]any{}
		for range 30 {
			key := keys[r.IntN(len(keys))]
			kind, _, _ := strings.Cut(key, "/")
			choice := append(states[kind], states[key]...)
			state := choice[r.IntN(len(choice))]
			broken := state != nil && r.IntN(5) == 0
			g.set.Put(key, state, broken, g.apply)
			if last[key] = state; broken {
				last[key] = errors.New(state.(string))
			}
		}
		before := g.set.Clone(kindOf).Values()
		fresh := newGraph()
		for _, i := range r.Perm(len(keys)) {
			state := last[keys[i]]
			if err, broken := state.(error); broken {
				fresh.set.Put(keys[i], err.Error(), true, fresh.apply)
			} else {
				fresh.put(keys[i], state)
			}
		}
		if diff := cmp.Diff(fresh.lines(), g.lines()); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		clone := g.set.Clone(kindOf)
		for _, key := range keys {
			clone.Put(key, nil, false, func(expand.Value) {})
		}
		if left := clone.Values(); len(left) > 0 {
			t.Fatalf("seed %d: nothing is said, and %v is left", seed, left)
		}
		for _, key := range []string{"list/x", "list/y"} { // merges the original's parts again
			g.set.Put(key, last[key], last[key] != nil && fmt.Sprintf("%T", last[key]) != "string", g.apply)
		}
		if diff := cmp.Diff(before, g.set.Values()); diff != "" {
			t.Fatalf("seed %d: a change of a clone changed the original: %s", seed, diff)
		}
	}
}
