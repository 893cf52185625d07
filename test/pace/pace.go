// Package pace turns the number of a test's cases into a smaller one where time is short: under the race detector, and with
// go test -short, as make test runs it. Invariant: it is never zero.
package pace

import (
	"os"
	"slices"
)

// Fewer returns n; where time is short, n divided by the second number, at least 1.
func Fewer[N int | uint64](n, by N) N {
	if !race && !short(os.Args[1:]) {
		return n
	}
	return max(1, n/by)
}

// short reports whether the command line of a test has -short. testing.Short panics before the flags are parsed: in variables, and where
// TestMain begins.
func short(args []string) bool {
	return slices.Contains(args, "-test.short=true") || slices.Contains(args, "-test.short")
}
