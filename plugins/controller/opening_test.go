package controller

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// between returns a controller of Services and of a processor that has interim states.
func between(t *testing.T) (*Controller, *recorder) {
	t.Helper()
	r := newRecorder()
	s := &behinder{stepper: stepper{values: r.values}, between: true}
	c := New(Config{Sources: []string{"test"}}, r.values, r, s)
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(done(c.Step(inSync("test"))))
	return c, r
}

// TestServicesWaitForRest: what changes while the rest of an interim state is due does not go together with that rest.
func TestServicesWaitForRest(t *testing.T) {
	c, _ := between(t)
	first := c.Step(states(1, 2))
	expect(t, first, &event.Txn{Seq: 2, Cause: "service/default/web and 1 more", Values: values(dnat("default/web", 1), dnat("default/web-0", 2), dnat("steps", 1))})
	if next := c.Step(remove("web")); next != nil {
		t.Fatalf("before VPP has the interim state: %+v", next)
	}
	second := c.Step(done(first))
	expect(t, second, &event.Txn{Seq: 3, Cause: "service/default/web and 1 more", Values: values(dnat("steps", 2))})
	third := c.Step(done(second))
	if third == nil || len(third.Values) != 1 || third.Values[kv.Key(dnat("default/web", 1))] != nil {
		t.Errorf("after the rest: %+v, want the removal of the Service", third)
	}
}

// TestServicesWaitNoLongerThanThat: while VPP refuses the interim state, Services wait for a few seconds only.
func TestServicesWaitNoLongerThanThat(t *testing.T) {
	c, r := between(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c.Step(&event.Tick{Now: start})
	refused := done(c.Step(states(1, 2)))
	refused.Statuses = []event.ValueStatus{{Key: kv.Key(dnat("steps", 1)), State: event.Retrying}}
	c.Step(refused)
	if txn := c.Step(update("other", 7)); txn != nil {
		t.Fatalf("at once: %+v", txn)
	}
	if txn := c.Step(&event.Tick{Now: start.Add(maxPrecede - time.Second)}); txn != nil {
		t.Fatalf("before the bound: %+v", txn)
	}
	txn := c.Step(&event.Tick{Now: start.Add(maxPrecede)})
	if txn == nil || len(txn.Values) != 1 || r.values.Sent(kv.Key(dnat("default/other", 7))) == nil {
		t.Errorf("at the bound: %+v", txn)
	}
}

// narrow is the smaller of two ports; a smaller port opens nothing.
func narrow(was, now proto.Message) proto.Message {
	a, b := was.(*nat.DNat44), now.(*nat.DNat44)
	if a.GetLabel() != "default/gate" || b.StMappings[0].ExternalPort <= a.StMappings[0].ExternalPort {
		return nil
	}
	return dnat("default/gate", uint16(a.StMappings[0].ExternalPort))
}

// TestValuesOpenLast: a value that opens beside other changes waits for them, and closes with them. Alone it does not wait.
func TestValuesOpenLast(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	r.values.ByInterim(narrow)
	step := func(what string, txn *event.Txn, want ...proto.Message) *event.Txn {
		t.Helper()
		if len(want) == 0 && txn != nil || len(want) > 0 && (txn == nil || len(txn.Values) != len(want)) {
			t.Fatalf("%s: %+v, want %d values", what, txn, len(want))
		}
		for _, m := range want {
			if !kv.Equal(txn.Values[kv.Key(m)], m) {
				t.Errorf("%s: %v, want %v", what, txn.Values[kv.Key(m)], m)
			}
		}
		return txn
	}
	both := func(gate, other uint16) *event.Update {
		ev := update("gate", gate)
		ev.Changes = append(ev.Changes, update("other", other).Changes...)
		return ev
	}
	c.Step(done(step("new", c.Step(both(3, 1)), dnat("default/gate", 3), dnat("default/other", 1))))
	c.Step(done(step("alone", c.Step(update("gate", 5)), dnat("default/gate", 5))))
	c.Step(done(step("closes", c.Step(both(4, 2)), dnat("default/gate", 4), dnat("default/other", 2))))
	first := step("opens", c.Step(both(6, 3)), dnat("default/other", 3))
	step("before the answer", c.Step(update("other", 4)))
	second := step("the rest alone", c.Step(done(first)), dnat("default/gate", 6))
	c.Step(done(step("what waited", c.Step(done(second)), dnat("default/other", 4))))

	first = step("opens again", c.Step(both(9, 5)), dnat("default/other", 5))
	left := done(first)
	left.Left = []string{kv.Key(dnat("default/other", 5))}
	step("VPP lacks a part", c.Step(left))
	step("the rest after that part", c.Step(&event.Committed{}), dnat("default/gate", 9))
}
