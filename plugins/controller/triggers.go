package controller

import "time"

// mostTriggers is how many times are kept for one transaction, about 1.5 MB. VPP may be away for days while objects change.
const mostTriggers = 1 << 16

// triggers are the times of the changes that the next transaction answers, in order of arrival. Beyond the largest number, every
// second time is dropped, and so is every second later one. The kept times are as evenly spaced as the dropped ones, so the
// latencies measured from them have the same distribution.
type triggers struct {
	times []time.Time
	seen  int
	every int // one of this many is kept; 0: all are
}

func (t *triggers) addTrigger(at time.Time) {
	t.seen++
	if len(t.times) == mostTriggers {
		for i := range mostTriggers / 2 {
			t.times[i] = t.times[2*i+1]
		}
		t.times, t.every = t.times[:mostTriggers/2], 2*max(1, t.every)
	}
	if t.every == 0 || t.seen%t.every == 0 {
		t.times = append(t.times, at)
	}
}
