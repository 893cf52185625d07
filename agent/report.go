package agent

import (
	"context"
	"sync/atomic"

	"github.com/contiv-agent/contiv-agent/event"
)

// Reporter reports the state of objects and of the agent to Kubernetes; source/kube/report implements it.
type Reporter interface {
	// Run reports until ctx ends. changes counts the changes of the agent's state; ask returns the current report.
	Run(ctx context.Context, changes func() uint64, ask func(context.Context) (*event.Report, error)) error
}

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
