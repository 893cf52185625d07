package drain

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
)

// earlier is a mapping as an agent without draining leaves it: two pads, n backends, and free slots of those that it removed. The backends are in the
// order of their slots.
func earlier(rnd *rand.Rand, n int) (*pool, []Local) {
	p := poolOf(older[:])
	var all []Local
	put := func(i int) {
		b := backend(i, 2)
		if p.request(Request{true, b}) == nil {
			all = append(all, b)
		}
	}
	for i := range n {
		put(i)
	}
	for i := range rnd.IntN(3 * n) { // it adds first, and removes then
		at := rnd.IntN(len(all))
		gone := all[at]
		if put(n + i); rnd.IntN(4) == 0 {
			put(4096 + i)
		}
		all = slices.Delete(all, at, at+1)
		if err := p.request(Request{false, gone}); err != nil {
			panic(err)
		}
	}
	for len(all) > n {
		at := rnd.IntN(len(all))
		if err := p.request(Request{false, all[at]}); err != nil {
			panic(err)
		}
		all = slices.Delete(all, at, at+1)
	}
	return p, all
}

// adopt makes a layout of what VPP has, for a change to a goal.
func (w *walk) adopt(goal Goal) bool {
	w.t.Helper()
	more := len(goal.Taking) - Common(goal.Taking, w.vpp.list())
	groups, ok := Adopt(w.vpp.list(), more)
	if !ok {
		return false
	}
	w.adopted++
	if len(groups) > 0 && len(w.drained) > 0 { // pads are reset first
		w.reopened++
		w.drained = nil
	}
	for _, g := range groups {
		w.probes += len(g)
		w.group(g, goal)
		for _, o := range older {
			if choices(w.vpp.list())[o] > 0 {
				w.t.Fatalf("%v gets flows", o)
			}
		}
	}
	if w.layout, ok = Read(w.vpp.list()); !ok {
		w.t.Fatalf("not adopted: %v", w.vpp.list())
	}
	return true
}

// toAdopted is to with a mapping whose free slots are not known.
func (w *walk) toAdopted(goal Goal) {
	w.t.Helper()
	if plan, ok := w.layout.To(goal); w.layout == nil || w.layout.Lacks(plan, ok) {
		w.adopt(goal)
	}
	w.to(goal)
}

// replace replaces all backends, one after the other. Waits is how many others drain meanwhile.
func (w *walk) replace(rnd *rand.Rand, all []Local, waits int) {
	w.t.Helper()
	taking, draining := slices.Clone(all), []Local(nil)
	for k, i := range rnd.Perm(len(all)) {
		taking = append(slices.Clone(taking), backend(9000+k, 2))
		w.toAdopted(Goal{Taking: taking, Drained: draining})
		taking = slices.DeleteFunc(slices.Clone(taking), all[i].same)
		if draining = append(slices.Clone(draining), all[i]); len(draining) > waits+1 {
			draining = draining[1:]
		}
		w.toAdopted(Goal{Taking: taking, Drained: draining})
		w.drains++
	}
}

// TestEarlierMappingsDrain: the backends of mappings of an agent without draining, whose free slots are not known, are replaced one by one. No flow of one
// that stays ends. Of two neighbours that had no pad between them, the first one to leave loses its flows. The figures are the docs' (ADR 31).
func TestEarlierMappingsDrain(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 10, 30} {
		var sum figures
		for _, waits := range []int{0, 2} {
			for seed := range pace.Fewer(uint64(20), 5) {
				rnd := rand.New(rand.NewPCG(seed, 11))
				vpp, all := earlier(rnd, n)
				w := &walk{t: t, vpp: vpp, taking: all}
				w.settled()
				w.replace(rnd, all, waits)
				if w.requests > 30*n+40 {
					t.Errorf("%d backends are replaced with %d requests", n, w.requests)
				}
				sum.add(w.figures)
			}
		}
		t.Logf("%d backends: %+v", n, sum)
		if sum.anew > 0 || sum.ended > sum.lost || 3*sum.lost > sum.drains || n < 3 && sum.lost > 0 {
			t.Errorf("%d backends: worse than ADR 31 says: %+v", n, sum)
		}
	}
}

// TestEarlierMappingsChangeWeights: no flow ends when backends of a mapping of an agent without draining get other weights.
func TestEarlierMappingsChangeWeights(t *testing.T) {
	ended, changes := 0, 0
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 12))
		vpp, all := earlier(rnd, 1+rnd.IntN(20))
		w := &walk{t: t, vpp: vpp, taking: all, within: func(Local, int) bool { return true }}
		for range 5 {
			goal := Goal{Taking: slices.Clone(all)}
			for i := range goal.Taking {
				goal.Taking[i].Weight = uint8(1 + rnd.IntN(4))
			}
			w.toAdopted(goal)
			changes++
		}
		ended += w.ended
	}
	if ended > 0 {
		t.Errorf("the flows of %d backends ended in %d changes", ended, changes)
	}
}

// TestCutOffChangesEndNoFlow: an agent ends in the middle of a change, so that VPP has a free slot. The next one reaches the goal, and no flow of a backend that
// stays ends.
func TestCutOffChangesEndNoFlow(t *testing.T) {
	cuts, lost := 0, 0
	smallChanges(t, func(l Layout, plan Plan, goal Goal) {
		requests := slices.Concat(plan.Groups...)
		for done := range requests {
			w, ok := &walk{t: t, vpp: poolOf(l), taking: goal.Taking}, false
			w.group(requests[:done], goal)
			w.ended = 0
			if w.layout, ok = Read(w.vpp.list()); !ok && !w.adopt(goal) {
				t.Fatalf("not adopted: %v", w.vpp.list())
			}
			w.to(goal)
			if cuts, lost = cuts+1, lost+w.lost; w.ended > w.lost || w.anew > 0 {
				t.Errorf("%+v of %+v: %+v", requests[:done], goal, w.figures)
			}
		}
	})
	t.Logf("%d changes were cut off, %d backends could not drain", cuts, lost)
	if lost > 0 {
		t.Errorf("%d backends could not drain", lost)
	}
}
