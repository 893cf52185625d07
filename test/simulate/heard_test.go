package simulate

import (
	"context"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// heard is what a client of the API server has seen since a round began. Each kind of objects has its own watch, so a client may have some objects of one version
// and others of another one for a time, which Kubernetes permits.
type heard struct {
	mu    sync.Mutex
	first map[model.Ref]event.Change // what it knew when the round began
	later []seen
}

// seen is a step: a client began anew, without any object, or saw changes, or knew everything.
type seen struct {
	anew    bool
	changes []event.Change
	synced  bool
}

// of is a source whose events are recorded.
func (h *heard) of(s agent.Source) agent.Source { return &listener{s, h} }

type listener struct {
	agent.Source
	to *heard
}

// Run implements agent.Source.
func (l *listener) Run(ctx context.Context, emit func(event.Event)) error {
	l.to.add(seen{anew: true})
	return l.Source.Run(ctx, func(e event.Event) {
		switch e := e.(type) {
		case *event.Update:
			l.to.add(seen{changes: e.Changes})
		case *event.SyncStatus:
			l.to.add(seen{synced: e.Status == event.InSync})
		}
		emit(e)
	})
}

func (h *heard) add(s seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.later = append(h.later, s)
}

// states are the objects that the client had, from now back to the beginning of the round, without those before its lists were complete. They are not to be changed.
func (h *heard) states() iter.Seq[map[model.Ref]event.Change] {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, synced := maps.Clone(h.first), true
	all := []map[model.Ref]event.Change{maps.Clone(now)}
	for _, s := range h.later {
		if s.anew {
			now, synced = map[model.Ref]event.Change{}, false
		}
		for _, ch := range s.changes {
			applyChange(now, ch)
		}
		if synced = synced || s.synced; synced && (len(s.changes) > 0 || s.synced) {
			all = append(all, maps.Clone(now))
		}
	}
	return func(yield func(map[model.Ref]event.Change) bool) {
		for _, s := range slices.Backward(all) {
			if !yield(s) {
				return
			}
		}
	}
}

// begin begins a round.
func (h *heard) begin() {
	for s := range h.states() {
		h.mu.Lock()
		h.first, h.later = s, nil
		h.mu.Unlock()
		return
	}
}

// lagging are states of an agent in which a namespace is behind: its changes wait in its lane, in order, while those of others and of objects without a
// namespace do not (ADR 19).
func (h *heard) lagging() iter.Seq[map[model.Ref]event.Change] {
	h.mu.Lock()
	defer h.mu.Unlock()
	base, later := h.first, h.later
	if i := slices.IndexFunc(later, func(s seen) bool { return s.anew }); i >= 0 {
		later = later[:i] // before the first sync nothing waits
	}
	return func(yield func(map[model.Ref]event.Change) bool) {
		waiting := map[string]int{} // changes so far, by namespace
		for end, s := range later {
			for _, ch := range s.changes {
				waiting[ch.Ref.Namespace]++
			}
			for ns, n := range waiting {
				for most := range n {
					if ns != "" && !yield(behind(base, later[:end+1], ns, most)) {
						return
					}
				}
			}
		}
	}
}

// behind is the state after some steps if only the first changes of a namespace have been applied.
func behind(base map[model.Ref]event.Change, steps []seen, ns string, most int) map[model.Ref]event.Change {
	state := maps.Clone(base)
	for _, s := range steps {
		for _, ch := range s.changes {
			if ch.Ref.Namespace == ns {
				if most--; most < 0 {
					continue
				}
			}
			applyChange(state, ch)
		}
	}
	return state
}

func applyChange(state map[model.Ref]event.Change, ch event.Change) {
	if ch.Object == nil && ch.Err == nil {
		delete(state, ch.Ref)
		return
	}
	state[ch.Ref] = ch
}

// explains reports whether a state that a client had allows a flow. Such a state has each object as one of the versions has it, and all that each of them has.
func (r *run) explains(h *heard, f *policy.Flow, versions []int) bool {
	return r.allows(h.states(), f, versions) || r.allows(h.lagging(), f, versions)
}

func (r *run) allows(states iter.Seq[map[model.Ref]event.Change], f *policy.Flow, versions []int) bool {
	for state := range states {
		objects := r.mixture(state, versions)
		if objects == nil {
			continue
		}
		if spec, err := policy.Read(objects); err == nil && spec.JudgePods(f).Allowed {
			return true
		}
	}
	return false
}

// mixture are the objects of a state, as versions have them; nil: the state has an object that none of them has, or lacks one that each has.
func (r *run) mixture(state map[model.Ref]event.Change, versions []int) (objects []policy.Object) {
	versions = slices.Compact(slices.Sorted(slices.Values(versions)))
	have := map[model.Ref]int{} // how many versions have an object
	found := map[model.Ref]policy.Object{}
	for _, i := range versions {
		v := r.history[i]
		for at, ch := range v.changes {
			have[ch.Ref]++
			if is, known := state[ch.Ref]; known && reflect.DeepEqual(is.Object, ch.Object) {
				found[ch.Ref] = v.stored[at].(policy.Object)
			}
		}
	}
	for ref := range state {
		if found[ref] == nil {
			return nil
		}
	}
	for ref, n := range have {
		if n == len(versions) && found[ref] == nil {
			return nil
		}
	}
	return slices.Collect(maps.Values(found))
}

// Changes of a namespace wait, one after the other; those of others and of objects without one do not.
func TestLagging(t *testing.T) {
	change := func(ns, name string) event.Change {
		return event.Change{Ref: model.Ref{Kind: model.KindService, Namespace: ns, Name: name}, Object: &model.Service{}}
	}
	h := heard{first: map[model.Ref]event.Change{}}
	h.add(seen{changes: []event.Change{change("a", "1"), change("", "2"), change("a", "3")}})
	h.add(seen{changes: []event.Change{change("b", "4")}})
	var got []string
	for state := range h.lagging() {
		var names []string
		for ref := range state {
			names = append(names, ref.Name)
		}
		slices.Sort(names)
		got = append(got, strings.Join(names, ""))
	}
	slices.Sort(got)
	if want := []string{"12", "124", "123", "2", "24"}; !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A state of two versions is one that a client may have. A state without an object that both have, or with another one, is not; nor is one before the lists were complete.
func TestMixture(t *testing.T) {
	r := newRun(Draw(3), Config{})
	var err error
	if r.history, err = history(3, 2, false); err != nil {
		t.Fatal(err)
	}
	from, to := r.history[0], r.history[1]
	both := changesBetween(from.objects, to.objects)
	half, rest := both[:len(both)/2], both[len(both)/2:]
	h := heard{first: from.objects}
	h.add(seen{changes: half})
	h.add(seen{changes: rest})
	if states := slices.Collect(h.states()); len(half) == 0 || len(states) != 3 || !reflect.DeepEqual(states[0], to.objects) || !reflect.DeepEqual(states[2], from.objects) {
		t.Fatalf("%d changes, %d states", len(both), len(states))
	} else if mixed := states[1]; r.mixture(mixed, []int{0, 1, 1}) == nil || r.mixture(mixed, []int{0}) != nil || r.mixture(mixed, []int{1}) != nil {
		t.Error("a state of two versions is not that, or is one of a single version")
	}
	for ref := range to.objects {
		spoiled := maps.Clone(to.objects)
		if spoiled[ref] = (event.Change{Ref: ref, Object: &model.Namespace{}}); r.mixture(spoiled, []int{0, 1}) != nil {
			t.Errorf("another %s is one of a version", ref)
		}
		delete(spoiled, ref)
		if _, had := from.objects[ref]; had == (r.mixture(spoiled, []int{0, 1}) != nil) {
			t.Errorf("without %s: %v", ref, had)
		}
	}
	for state := range h.lagging() {
		if r.mixture(state, []int{0, 1}) == nil {
			t.Error("a namespace that is behind makes a state of other versions")
		}
	}
	h.begin()
	h.add(seen{anew: true})
	h.add(seen{changes: half})
	if n := len(slices.Collect(h.lagging())); n != 0 {
		t.Errorf("%d states in which a namespace is behind, before the first sync", n)
	}
	if n := len(slices.Collect(h.states())); n != 1 {
		t.Errorf("%d states before the lists of a new client are complete", n)
	}
	h.add(seen{synced: true})
	if n := len(slices.Collect(h.states())); n != 2 {
		t.Errorf("%d states after it", n)
	}
}
