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

// Capture is the loop's state at one moment. It is taken inside the loop and read anywhere: nothing it refers to is changed later.
// Taking it copies references; what costs time (keys, order, joins) is done by who reads it.
type Capture struct {
	Status
	Wants []Wants // one for each owner, in no order
}

// Wants is what one owner wants.
type Wants struct {
	Owner  string
	Notes  []model.Note
	values map[string]proto.Message
}

// Capture takes the state; call it inside Ask when Run is running.
func (c *Controller) Capture() *Capture {
	out := &Capture{Status: c.Status(), Wants: make([]Wants, 0, len(c.values.owners))}
	for name, o := range c.values.owners {
		out.Wants = append(out.Wants, Wants{Owner: name, Notes: o.notes, values: o.values})
	}
	return out
}

// Owners is what became of everything that each owner wants, sorted by owner.
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

// Health is what the loop publishes of itself after each step that may change it.
type Health struct {
	Status      // without Located, Refused, Unwell and Trouble
	Ended  bool // Run has returned
}

// Health is the last that was published. It may be called from anywhere, and never waits for the loop.
func (c *Controller) Health() *Health { return c.health.Load() }

// Beat is when the loop last ended a step; it ends one each second at least. Zero: Run was not called. It may be called from anywhere.
func (c *Controller) Beat() time.Time {
	if n := c.beat.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// Steps counts the steps after which a Capture may differ from one before. It may be called from anywhere.
func (c *Controller) Steps() uint64 { return c.steps.Load() }

// publish replaces Health.
func (c *Controller) publish(ended bool) {
	c.health.Store(&Health{Ended: ended, Status: c.small()})
}

// stepped notes the end of a step. Objects alone do not change Health, and come by the thousand.
func (c *Controller) stepped(ev event.Event, sent bool) {
	tick := false
	switch ev.(type) {
	case *event.Update, *event.Dataplane, *event.External, *event.Located:
		if sent {
			c.publish(false)
		}
	case *event.Tick:
		was := c.health.Load().Overdue
		c.publish(false)
		tick = !sent && c.health.Load().Overdue == was
	default:
		c.publish(false)
	}
	if !tick {
		c.steps.Add(1)
	}
}
