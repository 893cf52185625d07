package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// writer is a processor that writes for the changes of a flush: rules for each of them, and rules for all of them.
type writer struct {
	*seenBy
	each, all int
	news      []string
}

func (w *writer) Apply(ch event.Change) {
	w.seenBy.Apply(ch)
	w.news = append(w.news, ch.Ref.String())
}

func (w *writer) Resync() error { return w.Flush() }

func (w *writer) Flush() error {
	write := func(name string, rules int) {
		v := dnat("default/"+name, uint16(w.n))
		v.StMappings = append(v.StMappings, &nat.DNat44_StaticMapping{ExternalIp: strings.Repeat("x", rules*ruleBytes)})
		w.values.Set(name, map[string]proto.Message{kv.Key(v): v}, nil)
	}
	for _, name := range w.news {
		write(name, w.each)
	}
	if len(w.news) > 0 {
		write("all", w.all)
	}
	w.news = nil
	return nil
}

func writing(t *testing.T, each, all int) (*Controller, *writer) {
	w := &writer{seenBy: &seenBy{recorder: newRecorder()}, each: each, all: all}
	c := New(Config{Sources: []string{"test"}}, w.values, w)
	c.Step(&event.VPPStatus{Connected: true})
	if txn := c.Step(done(c.Step(inSync("test")))); txn != nil {
		t.Fatalf("after the first sync: %+v", txn)
	}
	return c, w
}

// turnsFor are the numbers of changes in the transactions that follow many changes of a namespace.
func turnsFor(c *Controller, w *writer, changes int) (out []int) {
	held := c.Step(of("first", "one"))
	var names []string
	for i := range changes {
		names = append(names, fmt.Sprint(i))
	}
	c.Step(of("evil", names...))
	w.took()
	for txn := c.Step(done(held)); txn != nil; txn = c.Step(done(txn)) {
		out = append(out, len(w.took()))
	}
	return out
}

// TestShareFollowsWork: a turn of changes that each make much work has few of them, down to one, and a turn has many that make little work.
func TestShareFollowsWork(t *testing.T) {
	for _, tc := range []struct {
		name      string
		each, all int
		few, most int // changes in most turns
		changes   int
	}{
		{"much work for each", 400, 0, 1, 2, 300},
		{"some work for each", 50, 0, 4, 20, 1000},
		{"little work", 0, 0, share/lightCost - 1, share / lightCost, 5000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, w := writing(t, tc.each, tc.all)
			got := turnsFor(c, w, tc.changes)
			later := got[min(8, len(got)-1) : len(got)-1]
			slices.Sort(later)
			if middle := later[len(later)/2]; middle < tc.few || middle > tc.most {
				t.Errorf("%d changes in the middle turn, want %d to %d: %v", middle, tc.few, tc.most, got)
			}
			if last := later[len(later)-1]; last > 4*tc.most {
				t.Errorf("%d changes in a turn", last)
			}
		})
	}
}

// TestOnlyLatestChangeIsApplied: of many changes of one object in one update, or in updates that wait together, processors get the last one.
func TestOnlyLatestChangeIsApplied(t *testing.T) {
	c, s := fairly(t)
	many := of("evil", slices.Repeat([]string{"same"}, 1000)...)
	many.Changes = append(many.Changes, of("evil", "other").Changes...)
	if c.Step(many); !slices.Equal(s.took(), []string{"evil/same", "evil/other"}) {
		t.Error("processors get changes that a later one replaces")
	}
	in := make(chan event.Event, 10)
	for range 9 {
		in <- of("evil", "same")
	}
	in <- of("evil", "last")
	if c.Step(c.gather(<-in, in)); !slices.Equal(s.took(), []string{"evil/same", "evil/last"}) {
		t.Error("updates that wait are not taken together")
	}
}

// TestOneTurnBetweenEvents: while the clock runs, a turn that sends nothing ends a step as well, so that other events come before the next turn.
func TestOneTurnBetweenEvents(t *testing.T) {
	c, s := fairly(t)
	c.turns.clock = time.Now
	s.recorder.values = NewValues() // nothing is sent
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint(i))
	}
	c.Step(of("evil", names...))
	if n := len(s.took()); n > 2*turnWork/lightCost {
		t.Errorf("%d changes were applied in one step", n)
	}
	if next := c.nextDue(); next.IsZero() || next.After(time.Now()) {
		t.Errorf("the lane is due at %v", next)
	}
}

// TestLongSelectorsAreWork: a policy with long selectors takes as long as one with many rules.
func TestLongSelectorsAreWork(t *testing.T) {
	p := &model.Policy{ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: "long"}}
	p.InboundRules = []model.Rule{{Source: model.Peer{Selector: strings.Repeat("x", 500_000)}}}
	if got := cost(&event.Change{Ref: p.Ref(), Object: p}); got < heavyCost {
		t.Errorf("costs %d", got)
	}
}

// TestPausesAreNoTurn: a transaction pauses because VPP was busy with earlier ones. So its cost counts as a turn, and not how long it was in flight.
func TestPausesAreNoTurn(t *testing.T) {
	c, _ := fairly(t)
	now := time.Unix(1e6, 0)
	c.turns.clock = func() time.Time { return now }
	c.Step(done(c.Step(of("evil", "other"))))
	for _, cost := range []time.Duration{0, 10 * time.Millisecond} {
		end := done(c.Step(of("victim", "one")))
		end.Cost = cost
		now = now.Add(time.Second)
		c.Step(end)
		if got := max(0, c.turns.until["victim"].Sub(now)); got != restTurns*cost {
			t.Errorf("the victim rests %s after a turn of %s", got, cost)
		}
		now = now.Add(time.Second)
	}
}

// TestLaneOfAnotherDoesNotWaitForVPP: while VPP is behind, the lane of a namespace that spent its share waits, and that of another one does not.
func TestLaneOfAnotherDoesNotWaitForVPP(t *testing.T) {
	c, s := fairly(t)
	now := time.Unix(1e6, 0)
	c.turns.clock = func() time.Time { return now }
	txn := c.Step(of("evil", "a"))
	c.Step(divided(txn, "config/left"))
	s.took()
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint(i))
	}
	c.turns.until = map[string]time.Time{"victim": now.Add(100 * time.Millisecond)}
	txn = c.Step(of("evil", names...))
	c.Step(of("victim", "one"))
	if got := s.took(); len(got) > restShare/lightCost || slices.Contains(got, "victim/one") {
		t.Fatalf("%q", got)
	}
	c.Step(divided(txn, "config/left"))
	if next := c.nextDue(); !next.Equal(now.Add(100 * time.Millisecond)) {
		t.Errorf("a lane is due at %s", next)
	}
	now = now.Add(time.Second)
	if next := c.nextDue(); !next.Equal(now) {
		t.Errorf("a lane is due at %s", next)
	}
	txn = c.Step(&event.Tick{Now: now})
	if got := s.took(); txn == nil || !slices.Equal(got, []string{"victim/one"}) {
		t.Errorf("%q", got)
	}
	if next := c.nextDue(); !next.IsZero() {
		t.Errorf("the lane of evil is due at %s", next)
	}
}

// TestMembersShareDoesNotShrink: a change of a member writes as much as a hundred such changes, so they stay together.
func TestMembersShareDoesNotShrink(t *testing.T) {
	c, w := writing(t, 0, 10*turnWork)
	held := c.Step(of("first", "one"))
	w.took()
	ev := &event.Update{Source: "test"}
	for i := range 1000 {
		pod := &model.Pod{ID: model.PodID{Namespace: "evil", Name: fmt.Sprint(i)}}
		ev.Changes = append(ev.Changes, event.Change{Ref: pod.Ref(), Object: pod})
	}
	c.Step(ev)
	for txn := c.Step(done(held)); txn != nil; txn = c.Step(done(txn)) {
		if n := len(w.took()); n != share/lightCost && n != 1000%(share/lightCost) {
			t.Errorf("a turn of %d changes", n)
		}
	}
}

// The rules of an access list are counted, and other values by their size.
func TestWorkOfValues(t *testing.T) {
	big := &nat.DNat44{StMappings: []*nat.DNat44_StaticMapping{{ExternalIp: strings.Repeat("x", 50*ruleBytes)}}}
	var l load
	l.wrote(map[string]proto.Message{"list": &acl.ACL{Rules: make([]*acl.ACL_Rule, 100)}, "gone": nil, "mapping": big})
	if want := 3 + 100 + 50; l.written != want {
		t.Errorf("%d, want %d", l.written, want)
	}
}
