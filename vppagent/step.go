package vppagent

import (
	"context"

	"github.com/contiv-agent/contiv-agent/event"
)

// Step does once, and before it returns, what Run does for as long as it runs: it repairs VPP if the connection or the
// interfaces changed, commits the transaction (nil: there is none), retries and rechecks what is due, and answers the last Locate. It is
// for callers that step an agent by hand, and must not be mixed with Run.
func (a *Agent) Step(ctx context.Context, t *event.Txn) []event.Event {
	var out []event.Event
	a.rest.on = a.cfg.Pause != nil
	add := func(c *event.Committed) {
		if c != nil {
			out = append(out, c)
		}
	}
	add(a.attend(ctx))
	if t != nil {
		add(a.Commit(ctx, t))
		if t.Locate != nil {
			a.locate, a.located = t.Locate, nil
		}
	}
	add(a.Retry(ctx))
	add(a.Recheck(ctx))
	if t == nil {
		add(a.proceed(ctx))
	}
	if l := a.answer(ctx); l != nil {
		out = append(out, l)
	}
	return out
}
