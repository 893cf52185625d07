package vppagent

import (
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vppagent/history"
)

// record adds an execution to the history, unless it did nothing.
func (a *Agent) record(began time.Time, c *event.Committed, x *execution) {
	if len(x.done)+x.over == 0 && c.Err == nil && c.Resync == event.NoResync {
		return
	}
	r := &history.Record{
		Seq: c.Seq, Cause: c.Cause, Resync: c.Resync, At: began, Took: c.Took, Add: c.Add, Mod: c.Mod, Del: c.Del, Writes: c.Writes,
		Ops: slices.Clone(x.done), Dropped: x.over,
	}
	if c.Err != nil {
		r.Err = c.Err.Error()
	}
	a.history.AddRecord(r)
}

// noteStep records the result of a step for the history.
func (x *execution) noteStep(s Step) {
	if len(x.done) == x.a.history.RoomForOps() {
		x.over++
		return
	}
	op := history.Op{Action: s.Action.String(), Key: s.Key}
	if s.v.plan.err != nil {
		op.Err = s.v.plan.err.Error()
	}
	x.done = append(x.done, op)
}
