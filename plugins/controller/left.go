package controller

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
)

// Overtaker is a processor to which it matters whether VPP has all that it handed over.
type Overtaker interface {
	// Behind is called before each Flush. While it is true, VPP may have any part of what the processor handed over since it was false.
	Behind(bool)
}

// maxHeld bounds how long the rest of a change waits for a state on the way that VPP refuses. By then it has been tried some
// five times; to wait for ever would keep from VPP all that closes something else.
const maxHeld = 30 * time.Second

// held reports that VPP has not got to the state on the way yet, so that it is too early to go on from there.
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

// behind reports that VPP does not have all of the transactions that ended.
func (c *Controller) behind() bool { return len(c.left)+len(c.values.held) > 0 }

// going notes what has to be there before the next step.
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
