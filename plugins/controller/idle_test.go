package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// flushes is a processor that counts its flushes.
type flushes struct {
	*recorder
	n int
}

func (f *flushes) Flush() error { f.n++; return f.recorder.Flush() }

// behindWith returns a controller whose VPP lacks a key. The namespaces' changes of one share are in VPP.
func behindWith(t *testing.T, names ...string) (*Controller, *flushes, string) {
	f := &flushes{recorder: newRecorder()}
	c := New(Config{Sources: []string{"test"}}, f.values, f)
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(done(c.Step(inSync("test"))))
	key := kv.Key(dnat("default/large", 1))
	c.Step(divided(c.Step(update("large", 1)), key))
	for _, ns := range names {
		for i := 0; c.lanes[ns] == nil && i <= restShare/lightCost; i++ {
			if txn := c.Step(of(ns, fmt.Sprint(i))); txn != nil {
				c.Step(divided(txn, key))
			}
		}
		if c.lanes[ns] == nil {
			t.Fatalf("the changes of %s do not wait", ns)
		}
	}
	return c, f, key
}

// TestWaitingChangesMakeNoTurn: changes that wait in a lane make the processors render nothing, however many arrive. An event that may lead to a
// transaction does.
func TestWaitingChangesMakeNoTurn(t *testing.T) {
	c, f, key := behindWith(t, "evil")
	f.n = 0
	for i := range 1000 {
		if txn := c.Step(of("evil", fmt.Sprint("more-", i))); txn != nil {
			t.Fatalf("%+v", txn)
		}
	}
	if f.n > 0 {
		t.Errorf("%d flushes for changes that all wait", f.n)
	}
	if st := c.Status(); !st.Waits {
		t.Error("no change waits")
	}
	for _, ev := range []event.Event{of("victim", "one"), &event.Committed{Left: []string{key}}, &event.VPPStatus{Connected: true}, &event.Located{}, &event.Tick{}} {
		before := f.n
		if txn := c.Step(ev); txn != nil {
			c.Step(divided(txn, key))
		}
		if f.n == before {
			t.Errorf("%T makes no turn", ev)
		}
	}
	sent := 0
	for txn := c.Step(&event.Committed{}); txn != nil; txn = c.Step(done(txn)) {
		sent += len(txn.Values)
	}
	if sent != 1001 || len(c.lanes) > 0 {
		t.Errorf("%d of 1,001 changes are sent in the end, %d lanes", sent, len(c.lanes))
	}
}

// TestIdleTicksMakeNoTurn: while nothing is left to do, ticks let the processors render nothing and publish nothing. Lookups, events, and a processor in trouble
// still make a turn.
func TestIdleTicksMakeNoTurn(t *testing.T) {
	p := &stepper{values: NewValues()}
	f := &flushesOf{stepper: p}
	c := New(Config{Sources: []string{"test"}}, p.values, f)
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(done(c.Step(inSync("test"))))
	now := time.Unix(1000, 0)
	tick := func() *event.Txn {
		now = now.Add(time.Second)
		return c.Step(&event.Tick{Now: now})
	}
	tick()
	f.n = 0
	health := c.Health()
	for range 100 {
		if txn := tick(); txn != nil {
			t.Fatalf("%+v", txn)
		}
	}
	if f.n > 0 || c.Health() != health {
		t.Errorf("%d flushes; health is published again: %t", f.n, c.Health() != health)
	}
	p.locate = &event.Locate{Names: []string{"pod"}}
	txn := tick()
	if txn == nil || txn.Locate == nil || txn.Cause != "locate" {
		t.Fatalf("a lookup is due: %+v", txn)
	}
	tick()
	if !c.Health().Overdue {
		now = now.Add(overdue)
		if tick(); !c.Health().Overdue {
			t.Error("health does not say that the lookup is overdue")
		}
	}
	c.Step(done(txn))
	tick()
	f.n = 0
	for what, ev := range map[string]event.Event{"a change": states(1), "VPP": &event.VPPStatus{Connected: true}, "trouble": &event.Located{}, "a result": &event.Committed{}} {
		before := f.n
		p.err = nil
		if what == "trouble" {
			p.err = errors.New("trouble")
		}
		if txn := c.Step(ev); txn != nil {
			c.Step(done(txn))
		}
		if f.n == before {
			t.Errorf("%s makes no turn", what)
		}
	}
	p.err = errors.New("trouble")
	c.Step(&event.Located{})
	before := f.n
	if tick(); f.n == before {
		t.Error("a processor in trouble gets no turn")
	}
}

// flushesOf is a stepper that counts its flushes.
type flushesOf struct {
	*stepper
	n int
}

func (f *flushesOf) Flush() error { f.n++; return f.stepper.Flush() }

// TestLanesWaitForOthersWhileBehind: a change of another namespace is not rendered together with changes from a lane, which wait once.
func TestLanesWaitForOthersWhileBehind(t *testing.T) {
	c, _, key := behindWith(t, "evil")
	held := c.Step(of("victim", "one"))
	c.Step(of("victim", "two"))
	clear(c.spent) // evil has a share again
	expect(t, c.Step(divided(held, key)), &event.Txn{Seq: held.Seq + 1, Cause: "service/victim/two", Values: values(dnat("victim/two", 1))})
	if txn := c.Step(divided(&event.Txn{Seq: held.Seq + 1}, key)); txn == nil || len(txn.Values) != 1 || len(c.lanes) > 0 {
		t.Errorf("the lane waits twice: %+v", txn)
	}
}

// TestHeldValueIsComparedOnce: a value that waits for VPP is compared with the sent one when it changes, and not in each turn. The test makes the
// values equal behind the table's back: only a second comparison can see that.
func TestHeldValueIsComparedOnce(t *testing.T) {
	v := NewValues()
	was, now := dnat("a", 1), dnat("a", 2)
	key := kv.Key(was)
	wait := map[string]struct{}{key: {}}
	v.Set("owner", values(was), nil)
	v.changedValues(nil)
	v.Set("owner", values(now), nil)
	if v.changedValues(wait); len(v.held) != 1 {
		t.Fatalf("%d values wait", len(v.held))
	}
	now.StMappings[0].ExternalPort = was.StMappings[0].ExternalPort
	if v.changedValues(wait); len(v.held) != 1 {
		t.Error("a value that waits is compared again")
	}
	v.Set("owner", values(dnat("a", 1)), nil) // another message: it is compared, and equal
	if v.changedValues(wait); len(v.held) > 0 {
		t.Error("a value that is as VPP has it waits")
	}
	v.Set("owner", values(dnat("a", 3)), nil)
	v.changedValues(wait)
	if out := v.changedValues(nil); len(out) != 1 || !kv.Equal(out[key], dnat("a", 3)) {
		t.Errorf("then %v", out)
	}
	v.Set("z", values(dnat("a", 4)), nil) // the other owner decides
	if out := v.changedValues(wait); len(out)+len(v.held) > 0 {
		t.Errorf("a value that was sent is sent again: %v, %d wait", out, len(v.held))
	}
}

// TestLaneKeepsItsOrder: a lane that changes have left keeps the place and the latest change of each object that waits.
func TestLaneKeepsItsOrder(t *testing.T) {
	f := &fair{}
	for _, ch := range of("evil", "a", "b", "c", "d").Changes {
		f.wait("evil").putChange(ch)
	}
	if out := f.dequeue("evil", 2); len(out) != 2 || out[1].Ref.Name != "b" {
		t.Fatalf("%+v leave", out)
	}
	again := of("evil", "c", "a").Changes
	again[0].Object = nil
	for _, ch := range again {
		f.wait("evil").putChange(ch)
	}
	if out := f.dequeue("evil", 0); out != nil {
		t.Errorf("%+v leave", out)
	}
	out := f.dequeue("evil", 3)
	if len(out) != 3 || out[0].Ref.Name != "c" || out[0].Object != nil || out[1].Ref.Name != "d" || out[2].Ref.Name != "a" || len(f.lanes) > 0 {
		t.Errorf("%+v leave, %d lanes", out, len(f.lanes))
	}
}
