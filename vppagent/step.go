package vppagent

import (
	"context"

	"github.com/contiv-agent/contiv-agent/event"
)

// Step does one pass of Run's work before it returns: it repairs VPP if the connection or the interfaces changed, commits the
// transaction (nil: none), runs due retries and rechecks, and answers the last Locate. It serves callers that step an agent by hand. Do
// not mix it with Run.
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
	if l := a.answerLocate(ctx); l != nil {
		out = append(out, l)
	}
	return out
}
