package vppagent

import (
	"context"
	"errors"

	"github.com/contiv-agent/contiv-agent/event"
)

var errNothingWanted = errors.New("nothing is known to be wanted yet: a source is not in sync")

// Drift is what a resync would do now: how VPP, looked at altogether, differs from what is wanted. Nothing is changed. With sessions it
// counts as PlanSessions does. It is answered by Run, between two transactions; it fails with ctx, while VPP is away, and before the
// first transaction said what is wanted.
func (a *Agent) Drift(ctx context.Context, sessions bool) (*Plan, error) {
	var plan *Plan
	var err error
	asked := a.between(ctx, func() {
		resync := &event.Txn{Resync: event.Downstream}
		switch {
		case !a.told:
			err = errNothingWanted
		case sessions:
			plan, err = a.PlanSessions(ctx, resync)
		default:
			plan, err = a.Plan(ctx, resync)
		}
	})
	return plan, errors.Join(asked, err)
}
