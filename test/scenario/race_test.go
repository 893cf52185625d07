//go:build race

package scenario

// slowdown is how few of the ways of a story are gone because of the race detector: every tenth, others for each story.
const slowdown = 10
