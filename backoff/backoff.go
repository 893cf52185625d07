// Package backoff turns failures in a row into pauses that double.
//
// Invariant: a pause is never shorter than Range.Min and never longer than Range.Max. There is no clock and no randomness here;
// time comes in.
package backoff

import "time"

// Range bounds the pauses between attempts.
type Range struct {
	Min time.Duration // first pause; above 0
	Max time.Duration // longest pause; at least Min
}

// Next returns the pause that follows a pause: twice as long, within the range. The pause before the first one is 0.
func (r Range) Next(pause time.Duration) time.Duration {
	if pause > r.Max/2 {
		return r.Max
	}
	return max(2*pause, r.Min)
}

// Timer spaces the attempts of one operation. The zero value has seen no failure and is due.
type Timer struct {
	Pause time.Duration // last pause; 0: no failure since the last success
	At    time.Time     // when the next attempt is due
}

// Failed records a failure.
func (t *Timer) Failed(now time.Time, r Range) {
	t.Pause = r.Next(t.Pause)
	t.At = now.Add(t.Pause)
}

// Due reports whether the pause is over.
func (t *Timer) Due(now time.Time) bool { return !now.Before(t.At) }

// Reset forgets all failures.
func (t *Timer) Reset() { *t = Timer{} }
