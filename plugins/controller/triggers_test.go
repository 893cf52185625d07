package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// sliced returns a change of an EndpointSlice that was triggered that many seconds after the epoch.
func sliced(at int) *event.Update {
	id := model.SliceID{Namespace: "default", Name: fmt.Sprint("web-", at%10)}
	slice := &model.EndpointSlice{ID: id, Service: model.ServiceID{Namespace: "default", Name: "web"}, TriggerTime: time.Unix(int64(at), 0)}
	return &event.Update{Source: "test", Changes: []event.Change{{Ref: slice.Ref(), Object: slice}}}
}

// Below the limit all times of changes are kept; beyond it, an evenly spaced part of them.
func TestTriggersAreThinned(t *testing.T) {
	for _, c := range []struct{ changes, kept, apart int }{
		{0, 0, 0},
		{1, 1, 0},
		{mostTriggers, mostTriggers, 1},
		{mostTriggers + 1, mostTriggers / 2, 2},
		{2 * mostTriggers, mostTriggers, 2},
		{2*mostTriggers + 1, mostTriggers / 2, 4},
		{10 * mostTriggers, 10 * mostTriggers / 16, 16},
	} {
		var have triggers
		for at := range c.changes {
			have.addTrigger(time.Unix(int64(at), 0))
		}
		if len(have.times) != c.kept {
			t.Fatalf("%d changes: %d times, want %d", c.changes, len(have.times), c.kept)
		}
		for i := 1; i < c.kept; i++ {
			if d := have.times[i].Sub(have.times[i-1]); d != time.Duration(c.apart)*time.Second {
				t.Fatalf("%d changes: %s between times %d and %d, want %d s", c.changes, d, i-1, i, c.apart)
			}
		}
	}
}

// Changes that arrive while VPP works are in the next transaction, and only there.
func TestTriggersOfAHeldTransaction(t *testing.T) {
	ctl := start(t, newRecorder(), Config{})
	held := ctl.Step(update("web", 1))
	for at := 1; at <= mostTriggers+1; at++ {
		if txn := ctl.Step(sliced(at)); txn != nil {
			t.Fatalf("sent %+v while one is in flight", txn)
		}
	}
	ctl.Step(update("web", 2)) // the recorder wants nothing for EndpointSlices
	txn := ctl.Step(done(held))
	if txn == nil || len(txn.Triggered) != mostTriggers/2 {
		t.Fatalf("%d times", len(txn.Triggered))
	}
	ctl.Step(update("web", 3))
	if txn = ctl.Step(done(txn)); txn == nil || len(txn.Triggered) != 0 {
		t.Fatalf("the next transaction: %d times", len(txn.Triggered))
	}
}

// The controller counts causes up to a limit and stores no more of them.
func TestCausesOfAHeldTransaction(t *testing.T) {
	ctl := start(t, newRecorder(), Config{})
	held := ctl.Step(update("web", 1))
	for i := range 3 * mostCauses {
		ctl.Step(of(fmt.Sprint("team-", i), "web")) // each namespace has its share
		if n := len(ctl.causes.more); n > mostCauses {
			t.Fatalf("%d causes are remembered", n)
		}
	}
	if txn := ctl.Step(done(held)); txn.Cause != "service/team-0/web and 10000 or more" {
		t.Errorf("cause %q", txn.Cause)
	}
	for n, want := range map[int]string{0: "a", 3: "a and 3 more", mostCauses - 1: "a and 9999 more", mostCauses: "a and 10000 or more"} {
		c := causes{}
		c.addCause("a")
		for i := range n {
			c.addCause(fmt.Sprint(i))
			c.addCause("a")
		}
		if c.String() != want {
			t.Errorf("%d: %q", n, c.String())
		}
	}
}
