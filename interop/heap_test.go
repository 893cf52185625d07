package interop

import "testing"

// TestHeap holds ours to a third of what the real graph holds, on the clusters that are small enough for every run.
func TestHeap(t *testing.T) {
	for _, w := range workloads {
		if w.pods > 10_000 || w.netsets > 1_000 {
			continue
		}
		_, theirs, _ := felixSide(w.workload)
		_, mine, _ := ourSide(w.workload)
		t.Logf("%s: Felix %.1f MB, ours %.1f MB", w.name, float64(theirs)/1e6, float64(mine)/1e6)
		if 3*mine > theirs {
			t.Errorf("%s: %d bytes, more than a third of Felix's %d", w.name, mine, theirs)
		}
	}
}
