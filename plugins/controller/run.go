package controller

import (
	"context"
	"errors"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
)

// Run is the loop around Step: it takes events until ctx ends and hands transactions to out, one in flight. Time enters
// as a Tick once a second. The caller owns out, gives it a capacity of at least one (so that handing over a transaction
// never waits: one is in flight at most) and reads it; Run never closes it. A
// Controller runs once.
func (c *Controller) Run(ctx context.Context, in <-chan event.Event, out chan<- *event.Txn) error {
	defer close(c.ended)
	defer c.stopped()
	defer c.publish(true)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		c.beat.Store(time.Now().UnixNano())
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
		txn := c.Step(c.gather(ev, in))
		if txn == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case out <- txn:
			c.Meanwhile()
			c.steps.Add(1)
		}
	}
}

// maxGathered bounds how many updates are taken together.
const maxGathered = 256

// gather takes updates for as long as more of them wait, and returns the last event for Step: what follows from all is rendered once.
func (c *Controller) gather(ev event.Event, in <-chan event.Event) event.Event {
	for range maxGathered {
		if _, ok := ev.(*event.Update); !ok {
			break
		}
		select {
		case next := <-in:
			c.Meanwhile()
			c.accept(ev)
			ev = next
		default:
			return ev
		}
	}
	return ev
}

// ErrStopped is the answer to a question put to a controller that does not run any more.
var ErrStopped = errors.New("the controller has stopped")

// Ask runs f inside the loop, where it may read the controller's state, and waits for it. It fails with ctx, or with
// ErrStopped after Run has ended.
func (c *Controller) Ask(ctx context.Context, f func(*Controller)) error {
	done := make(chan struct{})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended:
		return ErrStopped
	case c.queries <- func() { f(c); close(done) }:
	}
	<-done // the loop has it and does not stop in between
	return nil
}
