package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// stepper is a processor that reaches each new port of a Service through interim ports.
type stepper struct {
	values *Values
	way    []uint16 // remaining ports
	err    error
	seen   []string
	vpp    string
	locate *event.Locate
}

func (s *stepper) Locate(time.Time) *event.Locate {
	ask := s.locate
	s.locate = nil
	return ask
}

func (s *stepper) Apply(ch event.Change) {
	s.seen = append(s.seen, ch.Ref.Name)
	if svc, ok := ch.Object.(*model.Service); ok {
		s.way = append(s.way, svc.HealthCheckNodePort)
	}
}
func (s *stepper) Located(*event.Located) { s.seen = append(s.seen, "located") }
func (s *stepper) Resync() error          { return s.Flush() }
func (s *stepper) Again() bool            { return len(s.way) > 0 }
func (s *stepper) VPP(st *event.VPPStatus) {
	s.vpp = st.Version
}

func (s *stepper) Flush() error {
	if len(s.way) > 0 {
		s.values.Set("steps", values(dnat("steps", s.way[0])), nil)
		s.way = s.way[1:]
	}
	return s.err
}

// states returns changes that give a stepper these states.
func states(ports ...uint16) *event.Update {
	ev := update("web", ports[0])
	for i, port := range ports[1:] {
		ev.Changes = append(ev.Changes, update(fmt.Sprint("web-", i), port).Changes...)
	}
	return ev
}

func TestEveryProcessorSeesEverything(t *testing.T) {
	r := newRecorder()
	s := &stepper{values: r.values, err: errors.New("two")}
	r.locate = &event.Locate{}
	var troubles []string
	c := New(Config{Sources: []string{"test"}, Observer: Observer{Trouble: func(err error) { troubles = append(troubles, err.Error()) }}}, r.values, r, s)
	r.err = errors.New("one")
	for _, ev := range []event.Event{
		&event.VPPStatus{Connected: true, Version: "25.10"}, update("web", 7), inSync("test"), &event.Committed{Seq: 1}, &event.Located{},
	} {
		c.Step(ev)
	}
	if want := []string{"web", "located"}; !slices.Equal(s.seen, want) || s.vpp != "25.10" {
		t.Errorf("saw %v of VPP %q, want %v", s.seen, s.vpp, want)
	}
	if want := []string{"one\ntwo"}; !slices.Equal(troubles, want) {
		t.Errorf("troubles %q, want %q", troubles, want)
	}
	if got := c.Status().Values; got != 2 {
		t.Errorf("%d values, want one of each processor", got)
	}
}

// Each interim state is a separate transaction; the last one answers the change. An interim state that VPP already has is skipped.
func TestStatesOnTheWay(t *testing.T) {
	r := newRecorder()
	s := &stepper{values: r.values}
	c := New(Config{Sources: []string{"test"}}, r.values, s)
	c.Step(&event.VPPStatus{Connected: true})
	if next := c.Step(done(c.Step(inSync("test")))); next != nil {
		t.Fatalf("after the first sync: %+v", next)
	}
	stamp := time.Unix(100, 0)
	c.Step(&event.Tick{Now: stamp})
	slice := &model.EndpointSlice{ID: model.SliceID{Namespace: "default", Name: "s"}, TriggerTime: stamp}
	ev := states(1, 1, 2, 2, 3) // 1 and 2 twice: nothing is sent for the second
	ev.Changes = append(ev.Changes, event.Change{Ref: slice.Ref(), Object: slice})
	var got []*event.Txn
	for txn := c.Step(ev); txn != nil && len(got) < 10; txn = c.Step(done(txn)) {
		got = append(got, txn)
	}
	cause := "service/default/web and 5 more"
	want := []*event.Txn{
		{Seq: 2, Cause: cause, Values: values(dnat("steps", 1))},
		{Seq: 3, Cause: cause, Values: values(dnat("steps", 2))},
		{Seq: 4, Cause: cause, Values: values(dnat("steps", 3)), Triggered: []time.Time{stamp}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("transactions (-want +got):\n%s", diff)
	}
}

// Any new lookup asks VPP for the needs of all processors, because the answer replaces the one before.
func TestLookupsAreMerged(t *testing.T) {
	r := newRecorder()
	s := &stepper{values: r.values}
	first, second := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3")
	r.locate = &event.Locate{
		Pods: map[netip.Addr]string{first: "a"}, NodeIPs: []netip.Addr{netip.MustParseAddr("192.168.16.1")},
		Remote: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}, Override: event.Located{Uplink: "up"},
	}
	want := *r.locate
	c := New(Config{Sources: []string{"test"}}, r.values, r, s)
	c.Step(&event.VPPStatus{Connected: true})
	txn := c.Step(inSync("test"))
	opts := cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), protocmp.Transform()}
	if diff := cmp.Diff(&want, txn.Locate, opts); diff != "" {
		t.Fatalf("one asks (-want +got):\n%s", diff)
	}
	c.Step(done(txn))
	s.locate = &event.Locate{Names: []string{"default/new"}, Pods: map[netip.Addr]string{first: "b", second: "b"}}
	txn = c.Step(&event.Located{})
	want.Names, want.Pods = []string{"default/new"}, map[netip.Addr]string{first: "a", second: "b"}
	if diff := cmp.Diff(&want, txn.Locate, opts); diff != "" {
		t.Fatalf("the other asks (-want +got):\n%s", diff)
	}
}

// The rest of a change waits for an interim state that VPP refused, but not for ever. Other changes do not wait.
func TestRestWaitsForInterimState(t *testing.T) {
	start := func() (*Controller, *event.Txn, string) {
		r, s := newRecorder(), &stepper{}
		s.values = r.values
		c := New(Config{Sources: []string{"test"}}, r.values, r, s)
		c.Step(&event.VPPStatus{Connected: true})
		c.Step(done(c.Step(inSync("test"))))
		c.Step(&event.Tick{Now: time.Unix(100, 0)})
		txn := c.Step(states(1, 2))
		for key := range values(dnat("steps", 1)) {
			return c, txn, key
		}
		return nil, nil, ""
	}
	refused := func(txn *event.Txn, key string) *event.Committed {
		ev := done(txn)
		ev.Statuses = []event.ValueStatus{{Key: key, State: event.Retrying}}
		return ev
	}
	rest := func(txn *event.Txn, key string) bool { return txn != nil && txn.Values[key] != nil }

	t.Run("until it is there", func(t *testing.T) {
		c, txn, key := start()
		if txn = c.Step(refused(txn, key)); txn != nil {
			t.Fatalf("VPP refused the state on the way, and gets %+v", txn)
		}
		if txn = c.Step(update("other", 7)); txn == nil || rest(txn, key) {
			t.Fatalf("what another processor wants: %+v", txn)
		}
		if txn = c.Step(done(txn)); txn != nil {
			t.Fatalf("then: %+v", txn)
		}
		retry := &event.Committed{Statuses: []event.ValueStatus{{Key: key, State: event.Configured}}}
		if txn = c.Step(retry); !rest(txn, key) {
			t.Errorf("VPP has it now, and gets %+v", txn)
		}
	})
	t.Run("but not for ever", func(t *testing.T) {
		c, txn, key := start()
		c.Step(refused(txn, key))
		if txn = c.Step(&event.Tick{Now: time.Unix(100, 0).Add(maxHeld - 1)}); txn != nil {
			t.Fatalf("too early: %+v", txn)
		}
		if txn = c.Step(&event.Tick{Now: time.Unix(100, 0).Add(maxHeld)}); !rest(txn, key) {
			t.Errorf("VPP goes on refusing it, and gets %+v", txn)
		}
	})
}
