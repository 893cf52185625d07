package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// behinder is a stepper that records whether VPP has acknowledged its output.
type behinder struct {
	stepper
	behind  [][2]bool
	between bool // its states are interim states, but the last
	out     bool // it handed over an interim state
}

func (b *behinder) Flush() error {
	err := b.stepper.Flush()
	b.out = b.Again()
	return err
}

func (b *behinder) Behind(p dataplane.Progress) (between bool) {
	b.behind = append(b.behind, [2]bool{p.Behind, p.Acknowledged})
	return b.between && b.out
}

func (b *behinder) last() [2]bool { return b.behind[len(b.behind)-1] }

// divided is the result of a transaction that VPP has in part.
func divided(t *event.Txn, keys ...string) *event.Committed {
	c := done(t)
	c.Left = keys
	return c
}

func expect(t *testing.T, got, want *event.Txn) {
	t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("transaction (-want +got):\n%s", diff)
	}
}

// TestOthersOvertake: while VPP has only part of a transaction, keys of others are sent. Changes of the remaining keys are merged
// and sent in the end.
func TestOthersOvertake(t *testing.T) {
	r := newRecorder()
	idle := 0
	c := New(Config{Sources: []string{"test"}, Observer: Observer{Idle: func() { idle++ }}}, r.values, r)
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(done(c.Step(inSync("test"))))
	large := c.Step(update("large", 1))
	key := kv.Key(dnat("default/large", 1))
	idle = 0
	if next := c.Step(divided(large, key)); next != nil || c.Status().Left != 1 {
		st := c.Status()
		t.Fatalf("%+v, %d keys left", next, st.Left)
	}
	if next := c.Step(update("large", 2)); next != nil {
		t.Fatalf("a key that is left is sent: %+v", next)
	}
	other := c.Step(update("other", 7))
	expect(t, other, &event.Txn{Seq: 3, Cause: "service/default/large and 1 more", Values: values(dnat("default/other", 7))})
	if next := c.Step(divided(other, key)); next != nil {
		t.Fatalf("%+v", next)
	}
	c.Step(update("large", 3))
	if st := c.Status(); idle > 0 || st.Synced() {
		t.Errorf("idle %d times, in sync %v while keys are left", idle, st.Synced())
	}
	expect(t, c.Step(&event.Committed{}), &event.Txn{Seq: 4, Cause: "service/default/large", Values: values(dnat("default/large", 3))})
}

// TestNextStateWaitsForRest: the state after an interim state waits until VPP has all of the interim state. An Overtaker decides itself.
func TestNextStateWaitsForRest(t *testing.T) {
	r := newRecorder()
	s := &behinder{stepper: stepper{values: r.values}}
	for _, p := range []Processor{&s.stepper, s} {
		_, overtakes := p.(Overtaker)
		c := New(Config{Sources: []string{"test"}}, r.values, p)
		c.Step(&event.VPPStatus{Connected: true})
		c.Step(done(c.Step(inSync("test"))))
		first := c.Step(states(1, 2))
		expect(t, first, &event.Txn{Seq: 2, Cause: "service/default/web and 1 more", Values: values(dnat("steps", 1))})
		if st := c.Status(); !st.Waits {
			t.Errorf("overtaker %v: nothing waits for the end of an interim state", overtakes)
		}
		next := c.Step(divided(first, kv.Key(dnat("steps", 1))))
		if next != nil || len(s.way) != 1 && !overtakes {
			t.Fatalf("overtaker %v: %+v, %d states to come", overtakes, next, len(s.way))
		}
		if overtakes && (len(s.way) > 0 || s.last() != [2]bool{true, false}) {
			t.Errorf("the processor does not decide itself: %d states to come, behind and acknowledged %v", len(s.way), s.last())
		}
		expect(t, c.Step(&event.Committed{}), &event.Txn{Seq: 3, Cause: "service/default/web and 1 more", Values: values(dnat("steps", 2))})
		if overtakes && s.last() != [2]bool{true, true} { // it has all but the second state
			t.Errorf("behind and acknowledged %v when VPP has the first state", s.last())
		}
	}
}

// TestAwaitedTransactionIsNotDivided: the agent does not divide a transaction whose result another program waits for, and sends no answer while a
// key of it waits.
func TestAwaitedTransactionIsNotDivided(t *testing.T) {
	r := newRecorder()
	c := New(Config{Sources: []string{"test"}}, r.values, r)
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(done(c.Step(inSync("test"))))
	key := kv.Key(dnat("default/large", 1))
	c.Step(divided(c.Step(update("large", 1)), key))
	result := make(chan *event.ExternalResult, 1)
	change := &event.External{Source: "etcd", Values: values(dnat("default/large", 5)), Result: result}
	if next := c.Step(change); next != nil {
		t.Fatalf("%+v", next)
	}
	other := c.Step(update("other", 7))
	if other == nil || other.Awaited {
		t.Fatalf("%+v", other)
	}
	c.Step(divided(other, key))
	if len(result) > 0 {
		t.Fatal("answered while the key waits")
	}
	txn := c.Step(&event.Committed{})
	if txn == nil || !txn.Awaited {
		t.Fatalf("%+v", txn)
	}
	if c.Step(done(txn)); len(result) != 1 {
		t.Error("no answer")
	}
}

// TestBusyNamespaceWaitsForRest: while VPP is behind, a namespace has one small share. Changes beyond it wait until VPP has caught
// up.
func TestBusyNamespaceWaitsForRest(t *testing.T) {
	r := newRecorder()
	c := New(Config{Sources: []string{"test"}}, r.values, r)
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(done(c.Step(inSync("test"))))
	key := kv.Key(dnat("default/large", 1))
	c.Step(divided(c.Step(update("large", 1)), key))
	sent := 0
	for i := range 100 {
		if txn := c.Step(update(fmt.Sprint("more-", i), 1)); txn != nil {
			sent += len(txn.Values)
			c.Step(divided(txn, key))
		}
	}
	if sent < restShare/lightCost/2 || sent > restShare/lightCost {
		t.Errorf("%d of 100 changes are sent while VPP is behind", sent)
	}
	other := update("other", 7)
	svc := *other.Changes[0].Object.(*model.Service)
	svc.ID.Namespace = "other"
	other.Changes = []event.Change{{Ref: svc.Ref(), Object: &svc}}
	txn := c.Step(other)
	if txn == nil || len(txn.Values) != 1 {
		t.Fatalf("another namespace: %+v", txn)
	}
	if c.Step(divided(txn, key)) != nil {
		t.Fatal("lanes do not wait")
	}
	for txn = c.Step(&event.Committed{}); txn != nil; txn = c.Step(done(txn)) {
		sent += len(txn.Values)
	}
	if sent != 100 {
		t.Errorf("%d of 100 changes are sent in the end", sent)
	}
}

// TestQueuedUpdatesAreRenderedOnce: waiting updates are taken together.
func TestQueuedUpdatesAreRenderedOnce(t *testing.T) {
	r := newRecorder()
	c := New(Config{Sources: []string{"test"}}, r.values, r)
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(done(c.Step(inSync("test"))))
	in := make(chan event.Event, 10)
	in <- update("b", 2)
	in <- update("c", 3)
	in <- &event.Tick{Now: time.Unix(1, 0)}
	in <- update("d", 4)
	last := c.gather(update("a", 1), in)
	if _, tick := last.(*event.Tick); !tick || len(in) != 1 {
		t.Fatalf("%T is last, %d events wait", last, len(in))
	}
	expect(t, c.Step(last), &event.Txn{Seq: 2, Cause: "service/default/a and 2 more", Values: values(dnat("default/a", 1), dnat("default/b", 2), dnat("default/c", 3))})
}
