// Package fan turns many independent calculations into results on all cores. Its invariant: the results are those of one
// loop, because each call writes to its own place and nothing is shared.
package fan

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// grain is how many calls a core takes at a time: below, handing out costs more than it gains.
const grain = 64

// Each calls f(0) … f(n-1), each once and in any order, on all cores if there are many, and returns when all have.
func Each(n int, f func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), (n+grain-1)/grain)
	if workers <= 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var next atomic.Int64
	work := func() {
		for {
			to := int(next.Add(grain))
			from := to - grain
			if from >= n {
				return
			}
			for i := from; i < min(to, n); i++ {
				f(i)
			}
		}
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(work)
	}
	wg.Wait()
}

// Sort sorts a list, on two cores if it is long; like slices.SortFunc it does not keep the order of equal elements.
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
	// The rest lies behind the place that is filled: it is never overtaken.
	for at := 0; len(half) > 0; at++ {
		if len(rest) > 0 && compare(rest[0], half[0]) < 0 {
			list[at], rest = rest[0], rest[1:]
		} else {
			list[at], half = half[0], half[1:]
		}
	}
}
