// Package pace turns the number of a test's cases into a smaller one under the race detector. Invariant: it is never zero.
package pace

// Fewer returns n, or under the race detector n divided by a, at least 1.
func Fewer[N int | uint64](n, by N) N {
	if !race {
		return n
	}
	return max(1, n/by)
}
