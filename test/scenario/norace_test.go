//go:build !race

package scenario

// slowdown is 1 without the race detector.
const slowdown = 1
