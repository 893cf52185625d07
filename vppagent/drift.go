package vppagent

import (
	"context"
	"errors"

	"github.com/contiv-agent/contiv-agent/event"
)

var errNothingWanted = errors.New("nothing is known to be wanted yet: a source is not in sync")

// Drift returns what a resync would do now: all differences between VPP and the desired state. It changes nothing. With sessions it
// counts as PlanSessions does. Run answers it between two transactions. It fails with ctx, while VPP is away, and before the first
// transaction stated the desired state.
func (a *Agent) Drift(ctx context.Context, sessions bool) (*Plan, error) {
	var plan *Plan
	var err error
	asked := a.between(ctx, func() {
		resync := &event.Txn{Resync: event.Downstream}
		switch {
		case !a.informed:
			err = errNothingWanted
		case sessions:
			plan, err = a.PlanSessions(ctx, resync)
		default:
			plan, err = a.Plan(ctx, resync)
		}
	})
	return plan, errors.Join(asked, err)
}
