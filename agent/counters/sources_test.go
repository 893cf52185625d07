package counters

import (
	"slices"
	"testing"
)

// A count that VPP reset does not reduce the sum.
func TestSourceCountsSurviveReset(t *testing.T) {
	s := &sourceCounts{last: map[uint32]uint64{}, pods: map[string]uint64{}}
	for _, c := range []struct{ now, more uint64 }{{5, 5}, {9, 4}, {2, 2}, {2, 0}} {
		if got := s.addCount("a/b", 1, c.now); got != c.more {
			t.Errorf("%d: %d more, not %d", c.now, got, c.more)
		}
	}
	s.addCount("a/c", 2, 40)
	if got := s.sorted(); !slices.Equal(got, []SourceDrops{{"a/c", 40}, {"a/b", 11}}) {
		t.Errorf("drops %v", got)
	}
}
