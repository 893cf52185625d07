package controller

import "github.com/contiv-agent/contiv-agent/event"

// Listener is a processor that receives the messages of an external calculation graph.
type Listener interface {
	Dataplane(*event.Dataplane)
}

// dataplane passes on the messages of a Felix.
func (c *Controller) dataplane(ev *event.Dataplane) {
	for _, p := range c.processors {
		if l, ok := p.(Listener); ok {
			l.Dataplane(ev)
		}
	}
	if c.phase == running { // everything earlier is part of the first sync
		c.causes.addCause(ev.Source)
	}
}

// Unwell returns the status of a value that is not configured; false: it is configured, or no owner wants it. Call it inside the
// loop.
func (c *Controller) Unwell(key string) (event.ValueStatus, bool) {
	st, bad := c.statuses[key]
	return st, bad
}
