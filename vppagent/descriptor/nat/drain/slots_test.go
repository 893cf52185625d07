package drain

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// smallChanges calls f with plans for small mappings: a backend joins, drains, or leaves.
func smallChanges(t *testing.T, f func(l Layout, plan Plan, goal Goal)) {
	t.Helper()
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		var all []Local
		for i := range 2 + rnd.IntN(6) {
			all = append(all, backend(i, 2))
		}
		layout := New(all)
		for _, goal := range []Goal{
			{Taking: append(slices.Clone(all), backend(99, 2))}, {Taking: all[1:], Drained: all[:1]}, {Taking: all[1:]},
		} {
			plan, ok := layout.To(goal)
			if !ok {
				t.Fatal("no plan")
			}
			f(layout, plan, goal)
		}
	}
}

// TestRefusedRequestsEndNoFlow: VPP refuses one request of a change. The next change starts with what VPP has, and no flow of a backend that stays ends.
func TestRefusedRequestsEndNoFlow(t *testing.T) {
	refusals, anew := 0, 0
	smallChanges(t, func(l Layout, plan Plan, goal Goal) {
		for refused := range slices.Concat(plan.Groups...) {
			refusals++
			if !finishes(t, l, plan, refused, goal) {
				anew++
			}
		}
	})
	t.Logf("%d refusals, %d mappings made anew", refusals, anew)
	if anew > 0 {
		t.Errorf("%d of %d refusals make the mapping anew", anew, refusals)
	}
}

// finishes makes a plan's requests except one that VPP refuses, and then reaches the goal.
func finishes(t *testing.T, l Layout, plan Plan, refused int, goal Goal) bool {
	t.Helper()
	w := &walk{t: t, vpp: poolOf(l), taking: goal.Taking}
	slots, n := l.Slots(), 0
	for _, g := range plan.Groups {
		failed := false
		for _, r := range g {
			if n++; n-1 == refused || w.vpp.request(r) != nil {
				failed = true
			} else {
				slots.Did(r)
			}
		}
		if failed {
			break
		}
	}
	if !slots.Show(w.vpp.list()) {
		t.Fatalf("VPP has %v, the slots are %v", w.vpp.list(), slots)
	}
	group, now, ok := slots.Repair()
	if !ok {
		return false
	}
	w.group(group, goal)
	if !slices.Equal(w.vpp.list(), now) {
		t.Fatalf("VPP has %v, repaired are %v", w.vpp.list(), now)
	}
	w.layout = now
	w.to(goal)
	return w.ended+w.anew == 0
}
