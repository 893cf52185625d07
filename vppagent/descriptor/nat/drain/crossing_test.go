package drain

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
)

// weigh gives backends the weights that renderer/nat44 gives them, where every fifth one is on the node.
func weigh(numbers []int, wanted int) (out []Local) {
	local := func(n int) bool { return n%5 == 0 }
	locals := 0
	for _, n := range numbers {
		if local(n) {
			locals++
		}
	}
	remotes := len(numbers) - locals
	ratio, factor := 1, 1
	if locals > 0 {
		ratio = max(1, min(wanted, (255-remotes)/locals))
	}
	if (remotes+locals*ratio)*2 <= 255 {
		factor = 2
	}
	for _, n := range numbers {
		w := factor
		if local(n) {
			w = factor * ratio
		}
		out = append(out, backend(n, uint8(w)))
	}
	return out
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// atMostTwice is what a backend may have in a mapping that has crossed a limit: half its weight to twice its weight.
func atMostTwice(b Local, share int) bool {
	return 2*share >= int(b.Weight) && share <= 2*int(b.Weight)
}

// TestNoFlowEndsAtTheLimit: a mapping of 1 to 127 backends grows to 190 and shrinks again, one backend at a time or many. No backend that stays loses a
// flow, and each gets half its weight to twice its weight.
func TestNoFlowEndsAtTheLimit(t *testing.T) {
	for _, step := range []int{1, 7, 64} {
		var sum figures
		for i, start := range []int{1, 84, 106, 127} {
			if i%pace.Every(4) != 0 && step == 1 {
				continue
			}
			w := newWalk(t, weigh(upTo(start), 1))
			w.within = atMostTwice
			for n := start; n < 190; {
				n = min(n+step, 190)
				w.to(Goal{Taking: weigh(upTo(n), 1)})
			}
			for n := 190; n > start; {
				n = max(n-step, start)
				w.to(Goal{Taking: weigh(upTo(n), 1)})
			}
			w.within = func(b Local, share int) bool { return share == 2 || b.Weight != 2 }
			w.settled()
			sum.add(w.figures)
		}
		t.Logf("steps of %d: %+v", step, sum)
		if sum.ended+sum.anew > 0 {
			t.Errorf("steps of %d: flows ended: %+v", step, sum)
		}
	}
}

// TestFlowsEndOneByOneBeyond: VPP has no room for weights of 2 beyond 190 backends: the flows of one or two end for each that is added.
func TestFlowsEndOneByOneBeyond(t *testing.T) {
	w := newWalk(t, weigh(upTo(127), 1))
	w.within = atMostTwice
	for n := 128; n <= 253; n++ {
		had := w.ended
		w.to(Goal{Taking: weigh(upTo(n), 1)})
		if ended := w.ended - had; ended > 2 || n <= 190 && ended > 0 {
			t.Fatalf("%d backends: the flows of %d end", n, ended)
		}
	}
	t.Logf("%+v", w.figures)
}

// TestWeightsChangeInPlace: with another weight of the node's endpoints, none loses a flow. A lower weight holds at once for all but one of up to 84
// backends; a higher one for those that are added from then on.
func TestWeightsChangeInPlace(t *testing.T) {
	var sum figures
	lowered, missed := 0, 0
	for n := 2; n <= 190; n += 12 * pace.Every(4) {
		for _, from := range []int{1, 2, 4, 8} {
			for _, to := range []int{1, 2, 4, 8} {
				w := newWalk(t, weigh(upTo(n), from))
				w.within = func(b Local, share int) bool { return true }
				old := w.taking
				w.to(Goal{Taking: weigh(upTo(n), to)})
				if l, m := w.lowered(old); to < from {
					lowered, missed = lowered+l, missed+m
					if m > 1 && n <= 84 {
						t.Errorf("%d backends, weight from %d to %d: %d have more than their weight", n, from, to, m)
					}
				}
				sum.add(w.figures)
			}
		}
	}
	t.Logf("of %d backends with a lower weight, %d have more; %+v", lowered, missed, sum)
	if sum.ended+sum.anew > 0 {
		t.Errorf("flows ended: %+v", sum)
	}
}

// lowered counts the backends that have a lower weight than before, and those of them that get more flows. All others must get what they had.
func (w *walk) lowered(old []Local) (all, missed int) {
	w.t.Helper()
	shares, _ := w.layout.shares()
	for i, l := range w.layout {
		at := slices.IndexFunc(old, l.same)
		if at < 0 {
			continue
		}
		was, weight := int(old[at].Weight), int(w.taking[slices.IndexFunc(w.taking, l.same)].Weight)
		switch {
		case weight >= was && shares[i] != was:
			w.t.Errorf("%v got %d of %d numbers, and now %d", l, was, len(shares), shares[i])
		case weight < was:
			all++
			if shares[i] > weight {
				missed++
			}
		}
	}
	return all, missed
}

// TestRandomWalkAcrossTheLimit: backends come, leave and drain around the limit.
func TestRandomWalkAcrossTheLimit(t *testing.T) {
	var sum figures
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 127))
		numbers := upTo(100 + rnd.IntN(60))
		next := len(numbers)
		w := newWalk(t, weigh(numbers, 1))
		w.within = atMostTwice
		for range 60 {
			if rnd.IntN(2) == 0 && len(numbers) < 165 {
				numbers, next = append(slices.Clone(numbers), next), next+1
			} else {
				i := rnd.IntN(len(numbers))
				numbers = slices.Delete(slices.Clone(numbers), i, i+1)
			}
			w.to(Goal{Taking: weigh(numbers, 1)})
		}
		sum.add(w.figures)
	}
	t.Logf("%+v", sum)
	if sum.ended+sum.anew > 0 {
		t.Errorf("flows ended: %+v", sum)
	}
}
