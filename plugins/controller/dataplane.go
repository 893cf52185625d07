package controller

import "github.com/contiv-agent/contiv-agent/event"

// Listener is a processor that takes what somebody else calculated.
type Listener interface {
	Dataplane(*event.Dataplane)
}

// dataplane passes on what a Felix says.
func (c *Controller) dataplane(ev *event.Dataplane) {
	for _, p := range c.processors {
		if l, ok := p.(Listener); ok {
			l.Dataplane(ev)
		}
	}
	if c.phase == running { // whatever comes before is part of the first sync
		c.causes.add(ev.Source)
	}
}

// Unwell is what is wrong with a value; false: it is configured, or nobody wants it. Call it inside the loop.
func (c *Controller) Unwell(key string) (event.ValueStatus, bool) {
	st, bad := c.statuses[key]
	return st, bad
}
