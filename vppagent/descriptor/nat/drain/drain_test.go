package drain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
)

// pool is VPP's: a removed local frees its slot, and the next one gets the slot that was freed last.
type pool struct {
	slots []*Local
	free  []int
}

func poolOf(l Layout) *pool {
	p := &pool{}
	for _, x := range l {
		p.slots = append(p.slots, &x)
	}
	return p
}

// request executes a request as VPP does; an error is VPP's refusal.
func (p *pool) request(r Request) error {
	at := slices.IndexFunc(p.slots, func(l *Local) bool { return l != nil && l.same(r.Local) })
	switch {
	case r.Add && at >= 0:
		return fmt.Errorf("%v exists already", r.Local)
	case !r.Add && at < 0:
		return fmt.Errorf("%v does not exist", r.Local)
	case !r.Add && len(p.list()) < 3:
		return fmt.Errorf("too few locals")
	case !r.Add:
		p.slots[at], p.free = nil, append(p.free, at)
	case len(p.free) > 0:
		at = p.free[len(p.free)-1]
		p.slots[at], p.free = &r.Local, p.free[:len(p.free)-1]
	default:
		p.slots = append(p.slots, &r.Local)
	}
	return nil
}

func (p *pool) list() (out Layout) {
	for _, l := range p.slots {
		if l != nil {
			out = append(out, *l)
		}
	}
	return out
}

// choices draws every number that VPP can draw, and returns how often each local is chosen; nil: VPP ends.
func choices(l Layout) map[Local]int {
	sums, sum := []int{}, 0
	for _, x := range l {
		sum = (sum + int(x.Weight)) % 256
		sums = append(sums, sum)
	}
	if sum == 0 {
		return nil
	}
	out := map[Local]int{}
	for n := 1; n <= sum; n++ {
		lo, hi := 0, len(l)-1
		for lo < hi {
			mid := lo + (hi-lo)/2
			if n > sums[mid] {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if sums[lo] < n {
			out[Local{}]++
		} else {
			out[l[lo]]++
		}
	}
	return out
}

func backend(n int, weight uint8) Local {
	return Local{Addr: [4]byte{10, 1, byte(n >> 8), byte(n)}, Port: 8080, Weight: weight}
}

// walk is a mapping under random changes, checked after each request.
type walk struct {
	t       *testing.T
	vpp     *pool
	layout  Layout
	taking  []Local
	drained []Local // VPP still has them
	// within says which shares a backend may have that gets new flows; nil: its weight only.
	within func(b Local, share int) bool
	figures
}

// figures are sums over many changes. Ended is how many backends that stay lost their flows.
type figures struct{ goals, requests, lost, hurried, reopened, anew, drains, ended, adopted, probes int }

func (f *figures) add(o figures) {
	f.goals, f.requests, f.lost, f.hurried = f.goals+o.goals, f.requests+o.requests, f.lost+o.lost, f.hurried+o.hurried
	f.reopened, f.anew, f.drains, f.ended = f.reopened+o.reopened, f.anew+o.anew, f.drains+o.drains, f.ended+o.ended
	f.adopted, f.probes = f.adopted+o.adopted, f.probes+o.probes
}

func newWalk(t *testing.T, backends []Local) *walk {
	w := &walk{t: t, layout: New(backends), taking: backends}
	w.vpp = poolOf(w.layout)
	w.settled()
	return w
}

// to changes the mapping to a goal, and checks each list that VPP has meanwhile.
func (w *walk) to(goal Goal) {
	w.t.Helper()
	w.goals++
	plan, ok := w.layout.To(goal)
	if !ok {
		w.anew++
		w.ended += len(w.taking)
		*w = walk{t: w.t, layout: New(goal.Taking), taking: goal.Taking, figures: w.figures, within: w.within}
		w.vpp = poolOf(w.layout)
		return
	}
	w.lost += len(plan.Lost)
	w.hurried += plan.Hurried
	if plan.Reopened {
		w.reopened++
	}
	leaks := 0
	for _, g := range plan.Groups {
		if w.group(g, goal) {
			leaks++
		}
	}
	if again, ok := plan.After.To(goal); !ok || len(again.Groups) > 0 {
		w.t.Fatalf("the goal is reached, and yet: %+v", again.Groups)
	}
	if leaks > plan.Hurried && !plan.Reopened {
		w.t.Fatalf("%d groups give a drained backend new flows meanwhile, %d are counted", leaks, plan.Hurried)
	}
	if !slices.Equal(w.vpp.list(), plan.After) {
		w.t.Fatalf("VPP has %v, the plan says %v", w.vpp.list(), plan.After)
	}
	if read, ok := Read(plan.After); !ok || !slices.Equal(read, plan.After) {
		w.t.Fatalf("not readable: %v", plan.After)
	}
	had := slices.Concat(w.taking, w.drained)
	w.layout, w.taking, w.drained = plan.After, goal.Taking, nil
	for _, d := range goal.Drained {
		if contains(had, d) && !contains(plan.Lost, d) {
			w.drained = append(w.drained, d)
		}
	}
	w.settled()
}

// group executes a group of requests. True: a backend that is drained before and after the change got new flows meanwhile.
func (w *walk) group(g []Request, goal Goal) (leaks bool) {
	w.t.Helper()
	for i, r := range g {
		w.requests++
		if !r.Add && (contains(goal.Taking, r.Local) || contains(goal.Drained, r.Local)) {
			w.ended++
		}
		if err := w.vpp.request(r); err != nil {
			w.t.Fatalf("request %+v: %v", r, err)
		}
		got := choices(w.vpp.list())
		if got == nil {
			w.t.Fatalf("VPP ends after request %d of %+v, goal %+v", i, g, goal)
		}
		for l := range got {
			if (l == Local{}) || l.isPad() {
				w.t.Fatalf("after request %d of %+v, a flow gets %v", i, g, l)
			}
			leaks = leaks || contains(w.drained, l) && contains(goal.Drained, l)
		}
	}
	return leaks
}

// settled fails unless every backend gets its weight, and drained ones and pads nothing.
func (w *walk) settled() {
	w.t.Helper()
	want := map[Local]int{}
	for _, b := range w.taking {
		want[b] = int(b.Weight)
	}
	if len(want) == 0 {
		want[Discard] = 1
	}
	got := map[Local]int{}
	for l, n := range choices(w.vpp.list()) {
		at := slices.IndexFunc(w.taking, l.same)
		if w.within != nil && at >= 0 {
			if l = w.taking[at]; w.within(l, n) {
				n = want[l]
			}
		}
		got[l] = n
	}
	for l, n := range got {
		if want[l] != n {
			w.t.Fatalf("%v gets %d of %d, want %d\n%v", l, n, len(got), want[l], w.vpp.list())
		}
	}
	if len(got) != len(want) {
		w.t.Fatalf("chosen: %v, want %v", got, want)
	}
	for _, d := range w.drained {
		if w.vpp.list().find(d) < 0 {
			w.t.Fatalf("%v is drained, and VPP does not have it", d)
		}
	}
	if len(w.vpp.list()) > 255 {
		w.t.Fatalf("%d locals", len(w.vpp.list()))
	}
}

// TestEveryBackendCanBeDrained: of 2 to 84 backends each one is drained, undrained, and drained and removed.
func TestEveryBackendCanBeDrained(t *testing.T) {
	var sum figures
	for n := 2; n <= 84; n += pace.Every(6) {
		var all []Local
		for i := range n {
			all = append(all, backend(i, 2))
		}
		for i := range all {
			w := newWalk(t, all)
			rest := slices.Delete(slices.Clone(all), i, i+1)
			w.to(Goal{Taking: rest, Drained: all[i : i+1]})
			w.to(Goal{Taking: all})
			w.to(Goal{Taking: rest, Drained: all[i : i+1]})
			w.to(Goal{Taking: rest})
			sum.add(w.figures)
		}
	}
	t.Logf("%+v", sum)
	if sum.lost+sum.hurried+sum.anew > 0 {
		t.Errorf("not drained cleanly: %+v", sum)
	}
}

// TestRandomWalk: random backends come, drain, return and leave. The figures are the docs' (README).
func TestRandomWalk(t *testing.T) {
	for _, most := range []int{1, 3, 84} {
		var sum figures
		for seed := range uint64(40) {
			rnd := rand.New(rand.NewPCG(seed, uint64(most)))
			n := 2 + rnd.IntN(12)
			var taking, drained []Local
			next := 0
			for range n {
				taking, next = append(taking, backend(next, 2)), next+1
			}
			w := newWalk(t, taking)
			for range 100 {
				switch k := rnd.IntN(5); {
				case k == 0 && len(taking)+len(drained) < 84:
					taking, next = append(slices.Clone(taking), backend(next, 2)), next+1
				case k == 1 && len(taking) > 1 && len(drained) < most:
					i := rnd.IntN(len(taking))
					drained = append(slices.Clone(drained), taking[i])
					taking = slices.Delete(slices.Clone(taking), i, i+1)
					w.drains++
				case k == 2 && len(drained) > 0:
					i := rnd.IntN(len(drained))
					drained = slices.Delete(slices.Clone(drained), i, i+1)
				case k == 3 && len(drained) > 0:
					i := rnd.IntN(len(drained))
					taking = append(slices.Clone(taking), drained[i])
					drained = slices.Delete(slices.Clone(drained), i, i+1)
				case k == 4 && len(taking) > 2:
					i := rnd.IntN(len(taking))
					taking = slices.Delete(slices.Clone(taking), i, i+1)
				}
				w.to(Goal{Taking: taking, Drained: drained})
			}
			sum.add(w.figures)
		}
		t.Logf("at most %d drained: %+v", most, sum)
		if sum.lost+sum.reopened+sum.anew+sum.ended > 0 {
			t.Errorf("at most %d drained: worse than ADR 31 says: %+v", most, sum)
		}
	}
}

// TestRollouts: rolling updates of a mapping with several backends at a time, which drain for a while. The figures are the docs' (README).
func TestRollouts(t *testing.T) {
	var sum figures
	for _, n := range []int{3, 10, 30} {
		for _, wave := range []int{1, 2, 3, 5} {
			for _, waits := range []int{1, 2, 4} { // waves until a backend that drains is removed
				if wave <= n {
					w := newWalk(t, nil)
					w.rollOut(n, wave, waits)
					sum.add(w.figures)
				}
			}
		}
	}
	t.Logf("%+v", sum)
	if sum.lost+sum.reopened+sum.anew+sum.ended > 0 {
		t.Errorf("not drained: %+v", sum)
	}
}

// rollOut makes n backends, and replaces 300 of them, in the order in which they were made. The mapping has them in another order, as the renderer sorts them.
func (w *walk) rollOut(n, wave, waits int) {
	next := 0
	fresh := func(k int) (out []Local) {
		for range k {
			out = append(out, backend(next%2<<12+next, 2))
			next++
		}
		return out
	}
	sorted := func(lists ...[]Local) []Local {
		return slices.SortedFunc(slices.Values(slices.Concat(lists...)), func(a, b Local) int { return slices.Compare(a.Addr[:], b.Addr[:]) })
	}
	taking, draining := fresh(n), [][]Local{}
	w.to(Goal{Taking: sorted(taking)})
	for w.drains < pace.Fewer(300, 4) {
		taking = append(taking, fresh(wave)...)
		w.to(Goal{Taking: sorted(taking), Drained: sorted(draining...)})
		draining, taking = append(draining, taking[:wave]), taking[wave:]
		w.drains += wave
		if len(draining) > waits {
			draining = draining[1:]
		}
		w.to(Goal{Taking: sorted(taking), Drained: sorted(draining...)})
	}
}
