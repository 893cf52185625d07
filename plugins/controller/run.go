package controller

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
)

// Run is the loop around Step: it takes events until ctx ends and sends transactions to out, one in flight. Time enters as a Tick
// once per second, or once in slowTick while nothing is left to do. The caller owns out and reads it. Its capacity must be at least
// one, so that sending never waits: at most one transaction is in flight. Run never closes out. A Controller runs once.
func (c *Controller) Run(ctx context.Context, in <-chan event.Event, out chan<- *event.Txn) error {
	defer close(c.ended)
	defer c.stopped()
	defer c.publishHealth(true)
	beats := pace{ticker: time.NewTicker(time.Second)}
	defer beats.ticker.Stop()
	turn := time.NewTimer(0)
	defer turn.Stop()
	c.turns.clock = time.Now
	for {
		c.beat.mark()
		var ev event.Event
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev = <-in:
		case now := <-beats.ticker.C:
			ev = &event.Tick{Now: now}
		case now := <-turn.C:
			ev = &event.Tick{Now: now}
		case query := <-c.queries:
			query()
			c.rests, c.said = false, false // it may have changed something
			beats.hurry()
			continue
		}
		if now := c.beat.mark(); beats.slow() {
			c.tick(now) // the last one is up to slowTick ago
		}
		txn := c.Step(c.gather(ev, in))
		if next := c.nextDue(); !next.IsZero() && c.inFlight == 0 {
			turn.Reset(time.Until(next))
		}
		if _, tick := ev.(*event.Tick); !tick || txn != nil || c.inFlight != 0 || len(c.lanes) > 0 || !c.rests && c.vpp.Connected {
			beats.hurry()
		} else { // time alone brings nothing: VPP has everything, or is away
			beats.idle()
		}
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

// heartbeat is when the loop last began or ended a step, with its monotonic reading: clocks are set; nil: it does not run yet.
type heartbeat struct{ atomic.Pointer[time.Time] }

func (h *heartbeat) mark() time.Time {
	now := time.Now()
	h.Store(&now)
	return now
}

const (
	slowTick = 5 * time.Second // less than what health checks take for a loop that hangs
	slowFrom = 60              // ticks at which nothing was left to do
)

// pace is how often the loop ticks.
type pace struct {
	ticker *time.Ticker
	quiet  int // ticks at which nothing was left to do, since something was
}

// idle notes a tick at which nothing was left to do.
func (p *pace) idle() {
	if p.quiet++; p.quiet == slowFrom {
		p.ticker.Reset(slowTick)
	}
}

// hurry makes the loop tick each second again.
func (p *pace) hurry() {
	if p.slow() {
		p.ticker.Reset(time.Second)
	}
	p.quiet = 0
}

func (p *pace) slow() bool { return p.quiet >= slowFrom }

// maxGathered bounds how many updates are taken together.
const maxGathered = 256

// gather takes updates while more are waiting, and returns the last event for Step. The processors then render all of them once, and only the
// last change of each object.
func (c *Controller) gather(ev event.Event, in <-chan event.Event) event.Event {
	first, ok := ev.(*event.Update)
	if !ok {
		return ev
	}
	all := first
	for range maxGathered {
		select {
		case next := <-in:
			more, ok := next.(*event.Update)
			if !ok {
				c.Meanwhile()
				c.accept(all)
				return next
			}
			if all == first {
				all = &event.Update{Source: first.Source, Changes: slices.Clone(first.Changes)}
			}
			all.Changes = append(all.Changes, more.Changes...)
		default:
			return all
		}
	}
	return all
}

// ErrStopped is the result of Ask after Run has ended.
var ErrStopped = errors.New("the controller has stopped")

// Ask runs f inside the loop, where f may read the controller's state, and waits for it. It fails with ctx, or with ErrStopped after
// Run has ended.
func (c *Controller) Ask(ctx context.Context, f func(*Controller)) error {
	done := make(chan struct{})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended:
		return ErrStopped
	case c.queries <- func() { f(c); close(done) }:
	}
	<-done // the loop received f and does not stop before f ends
	return nil
}
