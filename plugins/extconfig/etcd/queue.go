package etcd

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/contiv-agent/contiv-agent/event"
)

// maxQueued is how many events wait separately for a busy loop. Further changes are merged, so the number of keys bounds the size of
// the queue.
const maxQueued = 64

// queue connects etcd, which does not wait, to the loop, which may be busy.
type queue struct {
	mu      sync.Mutex
	events  []event.Event
	wake    chan struct{} // capacity one
	sent    bool          // the loop received etcd's content once
	without bool          // the loop was released before that
	err     error         // why it has not received the content yet
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// addChange adds a change of etcd's content; the first one has all of it.
func (q *queue) addChange(ev *event.External) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent = true
	if n := len(q.events); n >= maxQueued {
		if last, ok := q.events[n-1].(*event.External); ok {
			merged := *last
			merged.Values, merged.Merge = maps.Clone(last.Values), maps.Clone(last.Merge)
			maps.DeleteFunc(merged.Merge, func(key string, _ event.Merge) bool { _, again := ev.Values[key]; return again })
			maps.Copy(merged.Values, ev.Values)
			if merged.Merge == nil {
				merged.Merge = map[string]event.Merge{}
			}
			maps.Copy(merged.Merge, ev.Merge)
			q.events[n-1] = &merged
			return
		}
	}
	q.addEvent(ev)
}

// status adds the state of the source.
func (q *queue) status(ev *event.SyncStatus) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err = ev.Err; q.without && !q.sent {
		ev = q.goingOn(ev.Source)
	}
	if n := len(q.events); n > 0 {
		if _, ok := q.events[n-1].(*event.SyncStatus); ok {
			q.events[n-1] = ev
			return
		}
	}
	q.addEvent(ev)
}

// goOn releases the loop to start without etcd's content, unless it was released before.
func (q *queue) goOn(source string, why error) (note string, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sent {
		return "", false
	}
	if q.without = true; q.err == nil {
		q.err = why
	}
	ev := q.goingOn(source)
	q.addEvent(ev)
	return ev.Note, true
}

func (q *queue) goingOn(source string) *event.SyncStatus {
	return &event.SyncStatus{Source: source, Status: event.InSync, Note: fmt.Sprintf("the agent continues without the values in etcd: %v", q.err)}
}

func (q *queue) addEvent(ev event.Event) {
	q.events = append(q.events, ev)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// runQueue sends events until ctx ends; before each, it calls due with it.
func (q *queue) runQueue(ctx context.Context, due func(*event.External), emit func(event.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-q.wake:
		}
		for ev := q.nextEvent(); ev != nil; ev = q.nextEvent() {
			if ext, ok := ev.(*event.External); ok {
				due(ext)
			}
			emit(ev)
		}
	}
}

func (q *queue) nextEvent() event.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return nil
	}
	ev := q.events[0]
	q.events[0] = nil
	if q.events = q.events[1:]; len(q.events) == 0 {
		q.events = nil
	}
	return ev
}
