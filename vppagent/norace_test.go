//go:build !race

package vppagent_test

// slowdown is 1 without the race detector.
const slowdown = 1
