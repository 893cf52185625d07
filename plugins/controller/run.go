package controller

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
)

// Run is the loop around Step: it takes events until ctx ends and hands transactions to out, one in flight. Time enters
// as a Tick once a second. The caller owns out, gives it a capacity of at least one (so that handing over a transaction
// never waits: one is in flight at most) and reads it; Run never closes it.
func (c *Controller) Run(ctx context.Context, in <-chan event.Event, out chan<- *event.Txn) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var ev event.Event
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev = <-in:
		case now := <-tick.C:
			ev = &event.Tick{Now: now}
		case query := <-c.queries:
			query()
			continue
		}
		txn := c.Step(ev)
		if txn == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case out <- txn:
		}
	}
}

// Ask runs f inside the loop, where it may read the controller's state, and waits for it. It fails with ctx.
func (c *Controller) Ask(ctx context.Context, f func(*Controller)) error {
	done := make(chan struct{})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case c.queries <- func() { f(c); close(done) }:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}
