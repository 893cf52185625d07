//go:build race

package vppagent_test

// slowdown is by how much shorter the random walks are because of the race detector.
const slowdown = 5
