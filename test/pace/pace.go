// Package pace turns the number of a test's cases into a smaller one where time is short: with go test -short, as make test runs it, and under the
// race detector, which takes five to ten times as long and looks for goroutines that race, not for rare cases. Invariant: it is never zero.
package pace

import (
	"os"
	"slices"
	"testing"
)

// Fewer returns n; with -short n divided by the second number, and under the race detector n divided by four times that number. It is at least 1.
func Fewer[N int | uint64](n, by N) N {
	switch {
	case race:
		return max(1, n/by/4)
	case short(os.Args[1:]):
		return max(1, n/by)
	}
	return n
}

// Every returns 1, and n where time is short: a test that takes each nth of its cases takes all of them where there is time.
func Every(n int) int {
	if race || short(os.Args[1:]) {
		return n
	}
	return 1
}

// NotRaced skips a test under the race detector: one whose time goes to many packets from one goroutine, to programs that are built without the detector, or to a comparison that needs many cases.
func NotRaced(t testing.TB) {
	if race {
		t.Skip("nothing to race that other tests have not")
	}
}

// short reports whether the command line of a test has -short. testing.Short panics before the flags are parsed: in variables, and where
// TestMain begins.
func short(args []string) bool {
	return slices.Contains(args, "-test.short=true") || slices.Contains(args, "-test.short")
}
