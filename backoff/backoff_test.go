package backoff

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestPausesDouble(t *testing.T) {
	var timer Timer
	now := time.Unix(1_000_000, 0)
	if !timer.Due(now) {
		t.Error("no failure, and the first attempt is not due")
	}
	var got []time.Duration
	for range 5 {
		timer.Failed(now, Range{Min: time.Second, Max: 5 * time.Second})
		got = append(got, timer.Pause)
		if timer.Due(now.Add(timer.Pause-1)) || !timer.Due(now.Add(timer.Pause)) {
			t.Errorf("after %s: due before the end of the pause, or not at its end", timer.Pause)
		}
	}
	if want := []time.Duration{1e9, 2e9, 4e9, 5e9, 5e9}; !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
	if timer.Reset(); timer != (Timer{}) {
		t.Errorf("after a success: %+v", timer)
	}
}

func TestNextDoesNotOverflow(t *testing.T) {
	r := Range{Min: 1, Max: math.MaxInt64}
	if got := r.Next(math.MaxInt64 - 1); got != math.MaxInt64 {
		t.Errorf("Next = %d", got)
	}
	if got := (Range{Min: time.Minute, Max: time.Minute}).Next(0); got != time.Minute {
		t.Errorf("a range of one value gives %s", got)
	}
}
