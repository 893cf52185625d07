package fan

import "testing"

func TestEachIsOneLoop(t *testing.T) {
	for _, n := range []int{0, 1, grain - 1, grain, grain + 1, 10*grain + 7} {
		calls := make([]int, n)
		Each(n, func(i int) { calls[i]++ })
		for i, c := range calls {
			if c != 1 {
				t.Errorf("%d of %d: called %d times", i, n, c)
			}
		}
	}
}
