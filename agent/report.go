package agent

import (
	"sync/atomic"

	"github.com/contiv-agent/contiv-agent/event"
)

// changes counts changes of an agent's state.
type changes struct{ n atomic.Uint64 }

func (c *changes) happened() { c.n.Add(1) }

// watched emits to the loop, and counts.
func (c *changes) watched(emit func(event.Event)) func(event.Event) {
	return func(ev event.Event) {
		emit(ev)
		c.happened()
	}
}
