package controller

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
)

// Capture is a snapshot of the loop's state. Ask takes it inside the loop; any goroutine may read it, because nothing it refers to
// changes later. Taking it only copies references. The reader pays for the expensive work: keys, order and joins.
type Capture struct {
	Status
	Wants []Wants // one per owner, unordered
}

// Wants is the desired state of one owner.
type Wants struct {
	Owner  string
	Notes  []model.Note
	values map[string]proto.Message
}

// Capture takes a snapshot. Call it inside Ask when Run is running.
func (c *Controller) Capture() *Capture {
	out := &Capture{Status: c.Status(), Wants: make([]Wants, 0, len(c.values.owners))}
	for name, o := range c.values.owners {
		out.Wants = append(out.Wants, Wants{Owner: name, Notes: o.notes, values: o.values})
	}
	return out
}

// Owners returns the state of every owner's values, sorted by owner.
func (c *Capture) Owners() []OwnerStatus {
	unwell := make(map[string]event.ValueStatus, len(c.Unwell))
	for _, v := range c.Unwell {
		unwell[v.Key] = v
	}
	out := make([]OwnerStatus, 0, len(c.Wants))
	for _, w := range c.Wants {
		out = append(out, ownerStatus(Owned{Owner: w.Owner, Keys: kv.Values(w.values).Keys(), Notes: w.Notes}, unwell))
	}
	slices.SortFunc(out, func(a, b OwnerStatus) int { return strings.Compare(a.Owner, b.Owner) })
	return out
}

// Health is the part of the state that the loop publishes after each step that may change it.
type Health struct {
	Status      // without Located, Refused, Unwell and Trouble
	Ended  bool // Run has returned
}

// Health returns the last published health. Any goroutine may call it; it never waits for the loop.
func (c *Controller) Health() *Health { return c.health.Load() }

// Beat returns the time at which the loop last began or ended a step. The loop ends at least one step per second, and one in
// five seconds while nothing is left to do. The result is zero before Run. It has a monotonic reading. Any goroutine may call it.
func (c *Controller) Beat() time.Time {
	if at := c.beat.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Steps counts the steps that may have changed a Capture. Any goroutine may call it.
func (c *Controller) Steps() uint64 { return c.steps.Load() }

// publishHealth replaces Health.
func (c *Controller) publishHealth(ended bool) {
	c.health.Store(&Health{Ended: ended, Status: c.small()})
}

// stepped records the end of a step. A change of an object alone does not change Health, and such changes are frequent.
func (c *Controller) stepped(ev event.Event, sent bool) {
	tick, same := false, c.said && c.inFlight == 0
	c.said = false
	switch ev.(type) {
	case *event.Update, *event.Dataplane, *event.External, *event.Located:
		if sent {
			c.publishHealth(false)
		}
	case *event.Tick:
		was := c.health.Load().Overdue
		if c.said = !sent; !same || sent {
			c.publishHealth(false)
		}
		tick = !sent && c.health.Load().Overdue == was
	default:
		c.publishHealth(false)
	}
	if !tick {
		c.steps.Add(1)
	}
}
