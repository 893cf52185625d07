// Package parallel runs many independent calculations on all cores. Invariant: the results equal those of a sequential loop,
// because each call writes to a separate place and shares nothing.
package parallel

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// grain is how many calls a core takes at a time. With fewer calls the coordination costs more than it gains.
const grain = 64

// Ordered calls make(0) … make(n-1) once each, in any order and on all cores if n is large. It calls take(0) … take(n-1) in
// this order on the caller's goroutine, each after the make of the same number. take and later makes overlap in time.
func Ordered(n int, make func(i int), take func(i int)) {
	grains := (n + grain - 1) / grain
	workers := min(runtime.GOMAXPROCS(0), grains)
	if workers <= 1 {
		for i := range n {
			make(i)
			take(i)
		}
		return
	}
	var next atomic.Int64
	work := func() (done int, ok bool) {
		g := int(next.Add(1)) - 1
		if g >= grains {
			return 0, false
		}
		for i := g * grain; i < min((g+1)*grain, n); i++ {
			make(i)
		}
		return g, true
	}
	finished := newFlags(grains)
	var wg sync.WaitGroup
	for range workers - 1 {
		wg.Go(func() {
			for g, ok := work(); ok; g, ok = work() {
				finished.setFlag(g)
			}
		})
	}
	for at := 0; at < grains; {
		if !finished.hasFlag(at) {
			if g, ok := work(); ok {
				finished.setFlag(g)
			} else {
				finished.wait(at)
			}
			continue
		}
		for i := at * grain; i < min((at+1)*grain, n); i++ {
			take(i)
		}
		at++
	}
	wg.Wait()
}

// flags can each be set once and waited for.
type flags struct {
	mu      sync.Mutex
	changed *sync.Cond
	is      []bool
}

func newFlags(n int) *flags {
	f := &flags{is: make([]bool, n)}
	f.changed = sync.NewCond(&f.mu)
	return f
}

func (f *flags) setFlag(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.is[i] = true
	f.changed.Broadcast()
}

func (f *flags) hasFlag(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.is[i]
}

func (f *flags) wait(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.is[i] {
		f.changed.Wait()
	}
}

// Sort sorts a list, on two cores if it is long. Like slices.SortFunc it does not keep the order of equal elements.
func Sort[E any](list []E, compare func(a, b E) int) {
	const long = 2048
	if len(list) < long || runtime.GOMAXPROCS(0) < 2 {
		slices.SortFunc(list, compare)
		return
	}
	half := slices.Clone(list[:len(list)/2])
	rest := list[len(list)/2:]
	var wg sync.WaitGroup
	wg.Go(func() { slices.SortFunc(half, compare) })
	slices.SortFunc(rest, compare)
	wg.Wait()
	// The unmerged rest of list starts behind the place being filled, so the merge never overwrites it.
	for at := 0; len(half) > 0; at++ {
		if len(rest) > 0 && compare(rest[0], half[0]) < 0 {
			list[at], rest = rest[0], rest[1:]
		} else {
			list[at], half = half[0], half[1:]
		}
	}
}
