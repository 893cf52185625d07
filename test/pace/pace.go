// Package pace turns what a test would like to try into what the race detector leaves time for: never nothing.
package pace

// Fewer is n, or a so many-th of it, at least 1, where the race detector is on.
func Fewer[N int | uint64](n, by N) N {
	if !race {
		return n
	}
	return max(1, n/by)
}
