package calc_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/calico/recorded"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// state is the content of the datastore, and the state of Felix's data plane for it.
type state struct {
	name string
	kvs  map[string]string
	want []string
}

// walk is a path through states. After each leg the datastore is in one of them.
type walk struct {
	name string
	legs []leg
	// syncAfter is the leg after which the datastore is in sync; -1 for before the first.
	syncAfter int
}

type leg struct {
	changes []recorded.KV
	flush   bool   // after each change
	end     *state // nil if the datastore is between two states
}

func statesOf(t *testing.T, l recorded.List) []*state {
	t.Helper()
	var out []*state
	kvs := map[string]string{}
	m := mirror.New()
	for _, step := range l.Steps {
		kvs = maps.Clone(kvs)
		for _, c := range step.KVs {
			if c.Deleted {
				delete(kvs, c.Key)
			} else {
				kvs[c.Key] = c.Value
			}
		}
		for _, raw := range step.Messages {
			msg := &felix.ToDataplane{}
			if err := protojson.Unmarshal(raw, msg); err != nil {
				t.Fatalf("%s: %s: %v", l.Name, raw, err)
			}
			m.Apply([]*felix.ToDataplane{msg}, false)
		}
		out = append(out, &state{name: step.State, kvs: kvs, want: m.Dump()})
	}
	return out
}

// difference is the changes from one datastore to another, deletions first.
func difference(from, to map[string]string) (out []recorded.KV) {
	for _, k := range slices.Sorted(maps.Keys(from)) {
		if _, ok := to[k]; !ok {
			out = append(out, recorded.KV{Key: k, Deleted: true})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(to)) {
		if from[k] != to[k] {
			out = append(out, recorded.KV{Key: k, Value: to[k]})
		}
	}
	return out
}

// through visits states in the given order.
func through(name string, states []*state, edit func([]recorded.KV) []recorded.KV) walk {
	w := walk{name: name, syncAfter: -1}
	now := map[string]string{}
	for _, s := range states {
		changes := difference(now, s.kvs)
		if edit != nil {
			changes = edit(changes)
		}
		w.legs = append(w.legs, leg{changes: changes, end: s})
		now = s.kvs
	}
	return w
}

func reversed(list []recorded.KV) []recorded.KV {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func doubled(list []recorded.KV) (out []recorded.KV) {
	for _, c := range list {
		out = append(out, c, c)
	}
	return out
}

// walks are paths through a list of states. The data plane's state depends on the place alone, not on the path.
func walks(states []*state) []walk {
	back := slices.Clone(states)
	slices.Reverse(back)
	empty := &state{name: "empty", kvs: map[string]string{}}
	var withEmpty []*state
	for _, s := range states {
		withEmpty = append(withEmpty, s, empty)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	shuffled := func(list []recorded.KV) []recorded.KV {
		list = slices.Clone(list)
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list
	}
	ws := []walk{
		through("as recorded", states, nil),
		through("states reversed", back, nil),
		through("changes reversed", states, reversed),
		through("states and changes reversed", back, reversed),
		through("changes twice", states, doubled),
		through("changes shuffled", states, shuffled),
		through("changes shuffled again", append(slices.Clone(states), back...), shuffled),
		through("empty in between", withEmpty, nil),
		through("empty in between, changes reversed", withEmpty, reversed),
		through("twice", append(slices.Clone(states), states...), nil),
	}
	for _, w := range ws[:len(ws):len(ws)] {
		split := walk{name: w.name + ", split", syncAfter: -1}
		squashed := walk{name: w.name + ", squashed", syncAfter: -1, legs: []leg{{end: w.legs[len(w.legs)-1].end}}}
		late := walk{name: w.name + ", in sync late", legs: w.legs, syncAfter: len(w.legs) - 1}
		midway := walk{name: w.name + ", in sync midway", legs: w.legs, syncAfter: len(w.legs) / 2}
		for _, l := range w.legs {
			split.legs = append(split.legs, leg{changes: l.changes, flush: true, end: l.end})
			squashed.legs[0].changes = append(squashed.legs[0].changes, l.changes...)
		}
		lateSplit := walk{name: w.name + ", split, in sync late", legs: split.legs, syncAfter: len(w.legs) - 1}
		ws = append(ws, split, squashed, late, midway, lateSplit)
	}
	return ws
}

// TestConformance walks through the states of Felix's own tests on many paths. At every place it compares the data
// plane's state with the one that Felix made.
func TestConformance(t *testing.T) {
	places, every := 0, pace.Every(4)
	for _, l := range recorded.Lists() {
		t.Run(l.Name[:7], func(t *testing.T) {
			states := statesOf(t, l)
			for i, w := range walks(states) {
				if i%every != 0 {
					continue
				}
				places += compareAlong(t, l, w)
				if t.Failed() {
					return
				}
			}
		})
	}
	if !t.Failed() && places < 5_000/every {
		t.Errorf("only %d places compared", places)
	}
	t.Logf("%d places compared", places)
}

func compareAlong(t *testing.T, l recorded.List, w walk) (places int) {
	t.Helper()
	g := calc.New(calc.Config{
		Node: "localhostname", NodeResources: l.UseNodeResources, WorkloadRoutes: l.WorkloadRoutes(),
	})
	d, m := newDatastore(g), mirror.New()
	if w.syncAfter < 0 {
		g.InSync()
	}
	for i, leg := range w.legs {
		for _, c := range leg.changes {
			if err := d.apply(c); err != nil {
				t.Fatal(err)
			}
			if leg.flush {
				m.Apply(g.Flush(), true)
			}
		}
		if i == w.syncAfter {
			g.InSync()
		}
		m.Apply(g.Flush(), true)
		m.Check(t, w.name+", "+leg.end.name)
		if i < w.syncAfter {
			early(t, m)
			continue
		}
		if again := g.Flush(); len(again) > 0 {
			t.Errorf("%s: a flush without a change sends %v", w.name, again)
		}
		if m.InSyncs != 1 {
			t.Errorf("%s: %d messages say in sync", w.name, m.InSyncs)
		}
		if leg.end.want == nil {
			continue
		}
		places++
		if diff := cmp.Diff(leg.end.want, m.Dump()); diff != "" {
			t.Errorf("%s: at state %q (-Felix +calc):\n%s", w.name, leg.end.name, diff)
			return places
		}
	}
	return places
}

// early checks that nothing about endpoints is sent before the graph is in sync.
func early(t *testing.T, m *mirror.Mirror) {
	t.Helper()
	if m.InSyncs > 0 || len(m.Sets) > 0 {
		t.Errorf("before in sync: %d in-sync messages, %d sets", m.InSyncs, len(m.Sets))
	}
	for key := range m.Things {
		for _, kind := range []string{"ActivePolicy", "ActiveProfile", "WorkloadEndpoint", "HostEndpoint", "Config"} {
			if len(key) > len(kind) && key[:len(kind)] == kind {
				t.Errorf("before in sync: %s", key)
			}
		}
	}
}
