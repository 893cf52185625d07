package controller

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// endless is a processor that always has another state to hand over, which changes nothing.
type endless struct {
	stepper
	flushes int
}

func (e *endless) Flush() error { e.flushes++; return nil }
func (e *endless) Again() bool  { return true }

// TestStatesWithoutChangesEnd: one event leads to at most maxInterim states without requests, and no transaction. The next event leads to as many.
// Services are sent meanwhile.
func TestStatesWithoutChangesEnd(t *testing.T) {
	r, e := newRecorder(), &endless{}
	c := New(Config{Sources: []string{"test"}}, r.values, r, e)
	c.Step(&event.VPPStatus{Connected: true})
	if txn := c.Step(done(c.Step(inSync("test")))); txn != nil {
		t.Fatalf("after the first sync: %+v", txn)
	}
	for i := range 3 {
		e.flushes = 0
		if txn := c.Step(&event.Tick{Now: time.Unix(int64(i+1), 0)}); txn != nil || e.flushes != maxInterim {
			t.Fatalf("tick %d: %+v after %d states, want none after %d", i, txn, e.flushes, maxInterim)
		}
	}
	expect(t, c.Step(update("web", 7)), &event.Txn{Seq: 2, Cause: "service/default/web", Values: values(dnat("default/web", 7))})
}

// TestEndedStatesHoldNothing: when all states of a change are sent, a value of them that VPP refuses later does not hold the next change.
func TestEndedStatesHoldNothing(t *testing.T) {
	r := newRecorder()
	c := New(Config{Sources: []string{"test"}}, r.values, &stepper{values: r.values})
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(done(c.Step(inSync("test"))))
	c.Step(done(c.Step(states(1, 2))))
	refused := done(&event.Txn{Seq: c.inFlight})
	refused.Statuses = []event.ValueStatus{{Key: kv.Key(dnat("steps", 2)), State: event.Retrying}}
	if txn := c.Step(refused); txn != nil {
		t.Fatalf("%+v", txn)
	}
	expect(t, c.Step(states(3)), &event.Txn{Seq: 4, Cause: "service/default/web", Values: values(dnat("steps", 3))})
}

// restless is a controller with Services, values that open, and a processor that has interim states, on a VPP that refuses and divides.
type restless struct {
	*Controller
	r       *recorder
	s       *counted
	txn     *event.Txn // in flight
	left    []string
	retries map[string]bool
	now     time.Time
}

// counted counts the states of a processor.
type counted struct {
	behinder
	flushes int
}

func (s *counted) Flush() error {
	s.flushes++
	return s.behinder.Flush()
}

func newRestless() *restless {
	r := newRecorder()
	x := &restless{r: r, retries: map[string]bool{}, now: time.Unix(1_700_000_000, 0)}
	x.s = &counted{behinder: behinder{stepper: stepper{values: r.values}, between: true}}
	x.Controller = New(Config{Sources: []string{"test"}}, r.values, r, x.s)
	r.values.ByInterim(narrow)
	x.step(&event.VPPStatus{Connected: true})
	x.step(inSync("test"))
	x.step(&event.Tick{Now: x.now})
	return x
}

func (x *restless) step(ev event.Event) {
	x.s.flushes = 0
	if txn := x.Step(ev); txn != nil {
		x.txn = txn
	}
}

// end ends the transaction in flight. VPP refuses some of its values, and takes others later.
func (x *restless) end(refuse, leave func(key string) bool) {
	c := done(x.txn)
	for _, key := range slices.Sorted(maps.Keys(x.txn.Values)) {
		if delete(x.retries, key); x.txn.Resync == event.NoResync && refuse(key) {
			x.retries[key] = true
			c.Statuses = append(c.Statuses, event.ValueStatus{Key: key, State: event.Retrying})
			continue
		}
		c.Statuses = append(c.Statuses, event.ValueStatus{Key: key, State: event.Configured})
		if x.txn.Resync == event.NoResync && leave(key) {
			x.left = append(x.left, key)
		}
	}
	c.Left, x.txn = x.left, nil
	x.step(c)
}

// catchUp is VPP taking all that it refused, and all that is left.
func (x *restless) catchUp() {
	c := &event.Committed{}
	for _, key := range slices.Sorted(maps.Keys(x.retries)) {
		c.Statuses = append(c.Statuses, event.ValueStatus{Key: key, State: event.Configured})
	}
	clear(x.retries)
	x.left = nil
	x.step(c)
}

// ticksToRest is how many ticks, of 10 s each, the controller may need: what VPP refused holds others for up to 30 s.
const ticksToRest = 10

// TestComesToRest: after any changes, refusals and divided transactions, the controller sends everything that is wanted when VPP takes all of it, and then
// nothing. It needs no further event for that but a few ticks, and no event leads to more than maxInterim states.
func TestComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, want := newRestless(), map[string]uint16{}
		some := func(what string) func(string) bool {
			return func(string) bool { return rapid.IntRange(0, 3).Draw(t, what) == 0 }
		}
		none := func(string) bool { return false }
		check := func() {
			if x.s.flushes > maxInterim {
				t.Fatalf("%d states after one event", x.s.flushes)
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				ev := &event.Update{Source: "test"}
				for range rapid.IntRange(1, 3).Draw(t, "changes") {
					name, port := rapid.SampledFrom([]string{"gate", "web", "other"}).Draw(t, "name"), rapid.Uint16Range(1, 4).Draw(t, "port")
					want[name] = port
					ev.Changes = append(ev.Changes, update(name, port).Changes...)
				}
				x.step(ev)
			case 2:
				if x.txn != nil {
					x.end(some("refuse"), some("leave"))
				}
			case 3:
				x.catchUp()
			case 4:
				x.now = x.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
				x.step(&event.Tick{Now: x.now})
			}
			check()
		}
		x.catchUp()
		for ticks, txns := 0, 0; x.txn != nil || ticks < ticksToRest; check() {
			if x.txn == nil {
				ticks++
				x.now = x.now.Add(10 * time.Second)
				x.step(&event.Tick{Now: x.now})
				continue
			}
			if txns++; txns > 40 {
				t.Fatalf("transaction %d: %+v", txns, x.txn)
			}
			x.end(none, none)
		}
		for name, port := range want {
			if m := dnat("default/"+name, port); !kv.Equal(x.r.values.Sent(kv.Key(m)), m) {
				t.Errorf("VPP has %v, want %v", x.r.values.Sent(kv.Key(m)), m)
			}
		}
		if len(x.s.way) > 0 || x.news || x.values.begun > 0 || x.vppBehind() {
			t.Errorf("%d states to come, news %v, %d values begun, behind %v", len(x.s.way), x.news, x.values.begun, x.vppBehind())
		}
		if x.step(&event.Tick{Now: x.now.Add(time.Hour)}); x.txn != nil || x.s.flushes > 1 {
			t.Errorf("at rest: %+v after %d states", x.txn, x.s.flushes)
		}
	})
}
