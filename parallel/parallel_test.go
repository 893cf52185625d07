package parallel

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
)

func sizes() []int { return []int{0, 1, grain - 1, grain, grain + 1, 10*grain + 7} }

func TestOrderedIsOneLoop(t *testing.T) {
	for _, n := range sizes() {
		made := make([]atomic.Int32, n)
		taken := 0
		Ordered(n, func(i int) { made[i].Add(1) }, func(i int) {
			if i != taken || made[i].Load() != 1 {
				t.Errorf("%d of %d: taken at %d, made %d times", i, n, taken, made[i].Load())
			}
			taken++
		})
		if taken != n {
			t.Errorf("%d of %d taken", taken, n)
		}
	}
}

func TestSort(t *testing.T) {
	for _, n := range []int{0, 1, 2, 2047, 2048, 2049, 10_001} {
		list := make([]int, n)
		for i := range list {
			list[i] = rand.IntN(n)
		}
		want := slices.Sorted(slices.Values(list))
		if Sort(list, cmp.Compare); !slices.Equal(list, want) {
			t.Errorf("%d elements are not sorted, or not the same", n)
		}
	}
}
