package cni

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// errOvertaken is the cause of the end of an ADD's context when a DEL of its attachment arrives.
var errOvertaken = errors.New("a DEL of the same interface arrived")

// turns lets one call at a time work on a container, in the order of arrival. A GC works alone on all containers.
type turns struct {
	mu         sync.Mutex
	changed    chan struct{} // closed, and replaced, at each change
	lines      map[string][]*turn
	working    int  // calls that have their turn
	collecting bool // a GC waits for working to be 0, or works
}

// turn is a call that works or waits.
type turn struct {
	attachment protocol.Attachment
	adds       bool
	end        context.CancelCauseFunc
	working    bool
}

func newTurns() *turns {
	return &turns{changed: make(chan struct{}), lines: map[string][]*turn{}}
}

// announce wakes all that wait. The caller holds mu.
func (t *turns) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// enter waits until no earlier call works on the container, and returns a context for the call. leave ends the turn. A call that does not
// add is a DEL if deletes is true: it ends the contexts of all earlier calls for the attachment that add.
func (t *turns) enter(ctx context.Context, a protocol.Attachment, adds, deletes bool) (_ context.Context, leave func(), err error) {
	ctx, end := context.WithCancelCause(ctx)
	me := &turn{attachment: a, adds: adds, end: end}
	t.mu.Lock()
	if deletes {
		for _, other := range t.lines[a.ContainerID] {
			if other.adds && other.attachment == a {
				other.end(errOvertaken)
			}
		}
	}
	t.lines[a.ContainerID] = append(t.lines[a.ContainerID], me)
	for (t.lines[a.ContainerID][0] != me || t.collecting) && context.Cause(ctx) == nil {
		t.awaitChange(ctx)
	}
	if err := context.Cause(ctx); err != nil {
		t.remove(me)
		t.mu.Unlock()
		end(nil)
		return nil, nil, err
	}
	me.working = true
	t.working++
	t.mu.Unlock()
	return ctx, func() {
		t.mu.Lock()
		t.working--
		t.remove(me)
		t.mu.Unlock()
		end(nil)
	}, nil
}

// awaitChange returns after a change, or when ctx ends. The caller holds mu.
func (t *turns) awaitChange(ctx context.Context) {
	changed := t.changed
	t.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
	t.mu.Lock()
}

// remove takes a call out of its line. The caller holds mu.
func (t *turns) remove(me *turn) {
	id := me.attachment.ContainerID
	t.lines[id] = slices.DeleteFunc(t.lines[id], func(other *turn) bool { return other == me })
	if len(t.lines[id]) == 0 {
		delete(t.lines, id)
	}
	t.announce()
}

// enterAlone waits until no call works, and keeps all others waiting until leave. It returns the attachments of the ADDs in progress: a
// caller's list of valid attachments may lack them.
func (t *turns) enterAlone(ctx context.Context) (adding []protocol.Attachment, leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.collecting && ctx.Err() == nil {
		t.awaitChange(ctx)
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	t.collecting = true
	for _, line := range t.lines {
		for _, other := range line {
			if other.adds {
				adding = append(adding, other.attachment)
			}
		}
	}
	leave = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.collecting = false
		t.announce()
	}
	for t.working > 0 && ctx.Err() == nil {
		t.awaitChange(ctx)
	}
	if ctx.Err() != nil {
		t.collecting = false
		t.announce()
		return nil, nil, context.Cause(ctx)
	}
	return adding, leave, nil
}
