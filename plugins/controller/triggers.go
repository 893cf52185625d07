package controller

import "time"

// mostTriggers is how many times are kept for one transaction: a megabyte and a half. VPP may be away for days, and changes go on.
const mostTriggers = 1 << 16

// triggers are the times of the changes the next transaction answers, in the order they came. If they become too many, every other one
// is left out, and of what comes from then on as well: those that stay are as far apart as those that went, so that what is measured
// from them to the transaction has the same distribution.
type triggers struct {
	times []time.Time
	seen  int
	every int // one of so many stays; 0: all do
}

func (t *triggers) add(at time.Time) {
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
