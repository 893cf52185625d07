package controller

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
)

// Overtaker is a processor whose output depends on whether VPP has acknowledged its earlier output.
type Overtaker interface {
	// Behind is called before each Flush. While behind is true, VPP may lack values that the processor handed over. Acknowledged: it has
	// all that the processor handed over before Behind was last called with acknowledged.
	Behind(behind, acknowledged bool)
}

// maxHeld bounds how long the rest of a change waits for an interim state that VPP refuses. By then the agent has retried the state
// about five times. Waiting for ever would also withhold the parts of the change that close something else.
const maxHeld = 30 * time.Second

// announceTo passes to processors what VPP has acknowledged.
func announceTo(list []Processor, behind, acknowledged bool) {
	for _, p := range list {
		if o, ok := p.(Overtaker); ok {
			o.Behind(behind, acknowledged)
		}
	}
}

// pauses reports that a processor must not hand over its next state. VPP refuses a part of the interim state (held), or lacks one (behind): then
// an Overtaker decides itself.
func pauses(p Processor, held, behind bool) bool {
	_, stepwise := p.(Stepwise)
	_, overtakes := p.(Overtaker)
	return stepwise && (held || behind && !overtakes)
}

// held reports that VPP refuses a part of the interim state, so the next state must wait.
func (c *Controller) held() bool {
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

// vppBehind reports that VPP has not acknowledged all of the ended transactions.
func (c *Controller) vppBehind() bool { return len(c.left)+len(c.values.held) > 0 }

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
