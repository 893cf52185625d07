package controller

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
)

// Overtaker is a processor whose output depends on whether VPP has acknowledged its earlier output.
type Overtaker interface {
	// Behind is called before each Flush. While it is true, VPP may have any subset of the values that the processor handed over
	// since it was last false.
	Behind(bool)
}

// maxHeld bounds how long the rest of a change waits for an interim state that VPP refuses. By then the agent has retried the state
// about five times. Waiting for ever would also withhold the parts of the change that close something else.
const maxHeld = 30 * time.Second

// held reports that VPP has not acknowledged the interim state yet, so the next state must wait.
func (c *Controller) held() bool {
	if c.way != nil && c.behind() {
		return true
	}
	for key := range c.way {
		if c.statuses[key].State != event.Retrying {
			continue
		}
		if c.heldSince.IsZero() {
			c.heldSince = c.now
		}
		return c.now.Sub(c.heldSince) < maxHeld
	}
	return false
}

// behind reports that VPP has not acknowledged all of the ended transactions.
func (c *Controller) behind() bool { return len(c.left)+len(c.values.held) > 0 }

// going records the keys that VPP must acknowledge before the next step.
func (c *Controller) going(changes map[string]proto.Message, again bool) {
	if !again {
		c.way, c.heldSince = nil, time.Time{}
		return
	}
	if c.way == nil {
		c.way = map[string]struct{}{}
	}
	for key := range changes {
		c.way[key] = struct{}{}
	}
}
