package vpp

import (
	"context"
	"sync"

	"go.fd.io/govpp/api"
)

// dispatcher passes events from the reader, which must never block, to the callbacks, which may.
type dispatcher struct {
	wake chan struct{}

	mu    sync.Mutex
	fns   map[string][]func(api.Message)
	queue []event
}

type event struct {
	name string
	msg  api.Message
}

func newDispatcher() *dispatcher {
	return &dispatcher{wake: make(chan struct{}, 1), fns: map[string][]func(api.Message){}}
}

func (d *dispatcher) addFunc(name string, fn func(api.Message)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fns[name] = append(d.fns[name], fn)
}

// putEvent queues an event if a callback exists for it. The queue is unbounded: events are rare, and none may be lost.
func (d *dispatcher) putEvent(name string, m api.Message) {
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

func (d *dispatcher) runCallbacks(ctx context.Context) {
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
