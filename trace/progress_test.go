package trace

import (
	"slices"
	"testing"
)

// TestProgressOfNodes: who waits for a large cluster sees how many of its nodes have their agent.
func TestProgressOfNodes(t *testing.T) {
	var done []int
	guestbook(t, Config{Progress: func(n, all int) {
		if all != 3 {
			t.Errorf("%d nodes, want 3", all)
		}
		done = append(done, n)
	}})
	if want := []int{0, 1, 2, 3}; !slices.Equal(done, want) {
		t.Errorf("progress %v, want %v", done, want)
	}
}
