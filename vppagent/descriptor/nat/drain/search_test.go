package drain

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
)

// TestEverySearchEnds: of 60 and 84 backends, up to half are drained at a time. Without a bound the search for pads that drain all of them takes minutes.
func TestEverySearchEnds(t *testing.T) {
	pace.NotRaced(t)
	atBound := 0
	for _, n := range []int{60, 84} {
		rnd := rand.New(rand.NewPCG(uint64(n), 1))
		var taking, drained []Local
		next := 0
		add := func(k int) {
			for range k {
				taking, next = append(slices.Clone(taking), backend(next, 2)), next+1
			}
		}
		add(n)
		l := New(taking)
		for step := range pace.Fewer(60, 4) {
			switch rnd.IntN(4) {
			case 0, 1:
				for range min(rnd.IntN(n/2)+1, len(taking)-1) {
					i := rnd.IntN(len(taking))
					drained = append(slices.Clone(drained), taking[i])
					taking = slices.Delete(slices.Clone(taking), i, i+1)
				}
			case 2:
				add(min(rnd.IntN(n), n-len(taking)))
			case 3:
				for range rnd.IntN(len(drained)/2 + 1) {
					i := rnd.IntN(len(drained))
					drained = slices.Delete(slices.Clone(drained), i, i+1)
				}
			}
			plan, ok := l.To(Goal{Taking: taking, Drained: drained})
			if plan.Searched > mostLooks {
				t.Fatalf("%d backends, step %d: %d lists simulated, at most %d are", n, step, plan.Searched, mostLooks)
			}
			if plan.Searched == mostLooks {
				atBound++
			}
			if l = plan.After; !ok {
				l, drained = New(taking), nil
			}
			drained = slices.DeleteFunc(slices.Clone(drained), func(b Local) bool { return l.find(b) < 0 })
		}
	}
	t.Logf("%d searches come to the bound", atBound)
	if atBound == 0 {
		t.Error("no search comes to the bound: nothing is tested")
	}
}
