package controller

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// ExternalConfigSource is a way in for configuration of other programs: etcd, gRPC, or one of yours. What it wants goes into the
// same transactions as everything else, merged over what the agent itself wants for the same key.
type ExternalConfigSource interface {
	// String is the source's name, which must not change: it owns the values, and decides the order in which sources are merged.
	String() string
	// Run emits event.ExternalConfigResync and event.ExternalConfigChange until ctx ends. The first is a resync, at once and even
	// if it is empty: nothing is programmed before every source has said once what it wants. A source that cannot say it yet
	// says why with an event.SyncStatus under its name; InSync there lets the others go on without it. emit waits while the loop is
	// busy; event.Await waits for the result of a transaction, too.
	Run(ctx context.Context, emit func(event.Event)) error
}

// Onlooker is an ExternalConfigSource that wants to see what becomes of all values, not of its own alone.
type Onlooker interface {
	ExternalConfigSource
	// Show is called once, before Run. The function it is given tells all values there are, sorted by key, as of the last
	// transaction, whoever wants them; it may be called from anywhere.
	Show(values func() []event.Value)
	// Committed is called by the loop for each transaction that ended, and must not wait. Sent is what was last asked of VPP for a
	// key, nil: nothing; it may be called until Committed returns.
	Committed(ev *event.Committed, sent func(key string) proto.Message)
}

// asked are the external events that somebody waits for.
type asked struct {
	due      []question // their values are in no transaction yet
	underWay []question // they are in the one in flight
}

type question struct {
	result chan<- *event.ExternalResult
	keys   []string // sorted
}

func (q *question) answer(r *event.ExternalResult) {
	select {
	case q.result <- r:
	default: // nobody reads it any more
	}
}

func (c *Controller) external(ev *event.External) {
	if err := checkExternal(ev); err != nil {
		notify(c.cfg.Observer.Trouble, err)
		if ev.Result != nil {
			(&question{result: ev.Result}).answer(&event.ExternalResult{Err: err})
		}
		return
	}
	keys := c.values.SetExternal(ev)
	c.causes.add(ev.Source)
	if ev.Result != nil {
		c.due = append(c.due, question{result: ev.Result, keys: keys})
	}
	if _, waitedFor := c.sources[ev.Source]; ev.Resync && waitedFor && !c.inSync[ev.Source] {
		c.sync(&event.SyncStatus{Source: ev.Source, Status: event.InSync})
	}
}

// maxNamed bounds how many wrong values an error names: it is logged, and shown.
const maxNamed = 100

// checkExternal names every value that does not belong to its key, which proto.Merge would not take, or is to be merged by fields it
// does not have.
func checkExternal(ev *event.External) error {
	var errs []error
	more := 0
	for _, key := range kv.Values(ev.Values).Keys() {
		msg := ev.Values[key]
		if msg == nil {
			continue
		}
		switch err := errors.Join(kv.Check(key, msg), ev.Merge[key].Check(msg.ProtoReflect().Descriptor())); {
		case err == nil:
		case len(errs) < maxNamed:
			errs = append(errs, err)
		default:
			more++
		}
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", more))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("external configuration of %s: %w", ev.Source, err)
	}
	return nil
}

// carry notes that the transaction about to be sent has every value asked for so far.
func (c *Controller) carry() {
	c.underWay, c.due = append(c.underWay, c.due...), nil
}

// answer tells those who wait what became of their values.
func (c *Controller) answer(questions []question, seq uint64, err error) {
	for i := range questions {
		q := &questions[i]
		r := &event.ExternalResult{Seq: seq, Err: err, Values: make([]event.ValueStatus, 0, len(q.keys))}
		for _, key := range q.keys {
			st, unwell := c.statuses[key]
			switch {
			case unwell:
			case err != nil:
				st = event.ValueStatus{Key: key, State: event.Pending, Err: err.Error()}
			case c.values.Sent(key) != nil:
				st = event.ValueStatus{Key: key, State: event.Configured}
			default:
				st = event.ValueStatus{Key: key, State: event.Removed}
			}
			r.Values = append(r.Values, st)
		}
		q.answer(r)
	}
}

// stopped tells those who wait that nothing more will become of their values.
func (c *Controller) stopped() {
	for _, q := range append(c.underWay, c.due...) {
		q.answer(&event.ExternalResult{Err: ErrStopped})
	}
	c.asked = asked{}
}
