package controller

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Overtaker is a processor whose output depends on whether VPP has acknowledged its earlier output.
type Overtaker interface {
	// Behind is called before each Flush, with how far VPP is. Between reports that the rest of an interim state is due: the output of other processors must
	// not change together with what the rest opens. Flush may ask which connections end: those of processors before this one.
	Behind(dataplane.Progress) (between bool)
}

// maxHeld bounds how long the rest of a change waits for an interim state that VPP refuses. By then the agent has retried the state
// about five times. Waiting for ever would also withhold the parts of the change that close something else.
const maxHeld = 30 * time.Second

// maxPrecede bounds how long Services wait for an interim state that VPP refuses: the endpoints that they lose may no longer exist.
const maxPrecede = 5 * time.Second

// interims is the progress of interim states.
type interims struct {
	way       map[string]struct{} // keys of the transactions that lead to interim states
	heldSince time.Time           // time at which VPP was first found to refuse one of them; zero: it refused none
	news      bool                // processors without interim states may have something to hand over
}

// progress is how far VPP is on the path to interim states.
type progress struct {
	held, refuses bool               // VPP refuses a part of an interim state; for longer than maxPrecede
	behind        bool               // VPP has not acknowledged all of the ended transactions
	between       map[Processor]bool // the processors whose rest is due
	rest          bool               // any rest is due
}

// announceTo passes to processors what VPP has acknowledged. It returns those whose rest is due.
func announceTo(list []Processor, now dataplane.Progress) map[Processor]bool {
	between := map[Processor]bool{}
	for _, p := range list {
		if o, ok := p.(Overtaker); ok && o.Behind(now) {
			between[p] = true
		}
	}
	return between
}

// pauses reports that a processor must not hand over its next state. A Stepwise processor waits while VPP refuses a part of the interim state, or
// lacks one: then an Overtaker decides itself. If values open now, it waits unless its rest is due, too. Other processors wait while any rest is due.
func (s *progress) pauses(p Processor, interim, opens bool) bool {
	if _, stepwise := p.(Stepwise); !stepwise {
		return s.rest && !s.refuses
	}
	_, overtakes := p.(Overtaker)
	return s.held || interim && s.behind && !overtakes || opens && !s.between[p]
}

// anyIn reports that a set has a key of another one.
func anyIn(set, keys map[string]struct{}) bool {
	for key := range keys {
		if _, has := set[key]; has {
			return true
		}
	}
	return false
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
