package controller

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// ExternalConfigSource adds configuration of other programs, such as etcd, a gRPC client or a source that an embedder writes. Its
// values become part of the same transactions as all others. For a key that the agent itself wants, they are merged over the agent's
// value.
type ExternalConfigSource interface {
	// String returns the source's name, which must not change. The name owns the values and decides the order in which sources are
	// merged.
	String() string
	// Run emits event.ExternalConfigResync and event.ExternalConfigChange until ctx ends. The first event is a resync, sent at once
	// even if it is empty: the controller programs nothing before every source has sent its first resync. A source that cannot send
	// it yet reports the reason with an event.SyncStatus under its name; InSync there lets the others continue without it. emit
	// waits while the loop is busy; event.Await also waits for the result of a transaction.
	Run(ctx context.Context, emit func(event.Event)) error
}

// Onlooker is an ExternalConfigSource that observes the states of all values, not only of its values.
type Onlooker interface {
	ExternalConfigSource
	// Show is called once, before Run. The function it receives returns the values of all owners, sorted by key, as of the last
	// transaction. Any goroutine may call that function.
	Show(values func() []event.Value)
	// Committed is called by the loop for each transaction that ended, and must not wait. Sent returns the last value that was sent
	// to VPP for a key; nil: none. Sent is valid until Committed returns.
	Committed(ev *event.Committed, sent func(key string) proto.Message)
}

func (c *Controller) external(ev *event.External) {
	if err := checkExternal(ev); err != nil {
		notify(c.cfg.Observer.Trouble, err)
		if ev.Result != nil {
			(&question{result: ev.Result}).sendResult(&event.ExternalResult{Err: err})
		}
		return
	}
	keys := c.values.SetExternal(ev)
	c.causes.addCause(ev.Source)
	if ev.Result != nil {
		c.due = append(c.due, question{result: ev.Result, keys: keys})
	}
	if _, waitedFor := c.sources[ev.Source]; ev.Resync && waitedFor && !c.inSync[ev.Source] {
		c.sync(&event.SyncStatus{Source: ev.Source, Status: event.InSync})
	}
}

// maxNamed bounds how many wrong values an error names, because the error is logged and shown.
const maxNamed = 100

// checkExternal names every value that does not belong to its key, that proto.Merge would refuse, or whose merge terms name fields
// it does not have.
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

// carry records that the transaction about to be sent has all values that were requested so far.
func (c *Controller) carry() {
	c.underWay, c.due = append(c.underWay, c.due...), nil
}

// answerQuestions sends the waiting senders the states of their values.
func (c *Controller) answerQuestions(questions []question, seq uint64, err error) {
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
		q.sendResult(r)
	}
}

// stopped answers the waiting senders that their values will change no more.
func (c *Controller) stopped() {
	for _, q := range append(c.underWay, c.due...) {
		q.sendResult(&event.ExternalResult{Err: ErrStopped})
	}
	c.asked = asked{}
}
