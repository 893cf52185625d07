//go:build race

package policy_test

// slowdown is by how much fewer worlds are grown because of the race detector.
const slowdown = 10
