//go:build race

package transient_test

// slowdown is by how much fewer worlds are grown because of the race detector.
const slowdown = 5
