// Package events turns messages that VPP sends without a request into calls of the functions that wait for them.
//
// Invariant: PutEvent never blocks, and loses no message that a function waits for. RunCallbacks calls the functions one after the other, in the order of the messages.
package events

import (
	"context"
	"sync"

	"go.fd.io/govpp/api"
)

// Dispatcher passes events from a reader, which must never block, to callbacks, which may. Its methods may be called concurrently.
type Dispatcher struct {
	wake chan struct{}

	mu    sync.Mutex
	fns   map[string][]func(api.Message)
	queue []event
}

type event struct {
	name string
	msg  api.Message
}

// New returns a dispatcher without callbacks.
func New() *Dispatcher {
	return &Dispatcher{wake: make(chan struct{}, 1), fns: map[string][]func(api.Message){}}
}

// AddFunc adds a callback for messages of a name. It cannot be removed.
func (d *Dispatcher) AddFunc(name string, fn func(api.Message)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fns[name] = append(d.fns[name], fn)
}

// PutEvent queues an event if a callback exists for it. The queue is unbounded: events are rare, and none may be lost.
func (d *Dispatcher) PutEvent(name string, m api.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.fns[name]) == 0 {
		return
	}
	d.queue = append(d.queue, event{name, m})
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// RunCallbacks calls the callbacks until ctx ends.
func (d *Dispatcher) RunCallbacks(ctx context.Context) {
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			return
		}
		d.mu.Lock()
		queue := d.queue
		d.queue = nil
		d.mu.Unlock()
		for _, e := range queue {
			d.mu.Lock()
			fns := d.fns[e.name]
			d.mu.Unlock()
			for _, fn := range fns {
				fn(e.msg)
			}
		}
	}
}
