package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// of returns a change of a Service of a namespace.
func of(ns string, names ...string) *event.Update {
	ev := &event.Update{Source: "test"}
	for _, name := range names {
		svc := &model.Service{ID: model.ServiceID{Namespace: ns, Name: name}, HealthCheckNodePort: 1}
		ev.Changes = append(ev.Changes, event.Change{Ref: svc.Ref(), Object: svc})
	}
	return ev
}

// heavy returns a policy whose change costs half a share.
func heavy(ns, name string) *event.Update {
	p := &model.Policy{ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: ns, Name: name}}
	p.InboundRules = slices.Repeat([]model.Rule{{Source: model.Peer{Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}}, share/2)
	return &event.Update{Source: "test", Changes: []event.Change{{Ref: p.Ref(), Object: p}}}
}

// seenBy is a processor that records its changes, and wants a value for each flush with new ones.
type seenBy struct {
	*recorder
	seen []string
	n    uint16
}

func (s *seenBy) Apply(ch event.Change) {
	s.seen, s.n = append(s.seen, ch.Ref.Namespace+"/"+ch.Ref.Name), s.n+1
	s.recorder.Apply(event.Change{Ref: ch.Ref, Object: &model.Service{ID: model.ServiceID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}, HealthCheckNodePort: s.n}})
}

func fairly(t testing.TB) (*Controller, *seenBy) {
	s := &seenBy{recorder: newRecorder()}
	c := New(Config{Sources: []string{"test"}}, s.values, s)
	c.Step(&event.VPPStatus{Connected: true})
	if txn := c.Step(done(c.Step(inSync("test")))); txn != nil {
		t.Fatalf("after the first sync: %+v", txn)
	}
	return c, s
}

func (s *seenBy) took() []string {
	out := s.seen
	s.seen = nil
	return out
}

// A namespace with very many changes has a share of each transaction, which grows while its changes make little work; the single change of
// another namespace is in the next transaction.
func TestManyChangesOfOneNamespace(t *testing.T) {
	c, s := fairly(t)
	held := c.Step(of("evil", "first"))
	s.took()
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprint(i))
	}
	c.Step(of("evil", names...))
	c.Step(of("victim", "one"))
	got := s.took()
	if n := len(got); n != turnWork/lightCost+1 || got[n-1] != "victim/one" {
		t.Fatalf("%d changes before the next transaction, the last %q", n, got[len(got)-1])
	}
	if st := c.Status(); !st.Waits {
		t.Error("no change waits")
	}
	all, txns, most := len(got)-1, 0, 0
	for txn := c.Step(done(held)); txn != nil; txn = c.Step(done(txn)) {
		n := len(s.took())
		if txns++; n > share/lightCost {
			t.Errorf("%d changes for one transaction", n)
		}
		all, most = all+n, max(most, n)
	}
	if st := c.Status(); st.Waits {
		t.Error("changes wait after the last transaction")
	}
	if few := len(names) / (share / lightCost); all != len(names) || most != share/lightCost || txns > few+8 {
		t.Errorf("%d of %d changes in %d transactions, %d at most", all, len(names), txns, most)
	}
}

// A heavy change waits once while other namespaces have changes. Each transaction has one heavy change per namespace. Only the
// latest change of an object counts.
func TestHeavyChangesAlternate(t *testing.T) {
	c, s := fairly(t)
	held := c.Step(of("victim", "zero"))
	s.took()
	for _, ev := range []*event.Update{heavy("evil", "a"), heavy("evil", "b"), heavy("evil", "a"), heavy("other", "c"), of("victim", "one")} {
		c.Step(ev)
	}
	want := [][]string{{"victim/one"}, {"evil/a", "other/c"}, {"evil/b"}}
	txn := c.Step(done(held))
	for i, names := range want {
		if got := s.took(); txn == nil || !slices.Equal(got, names) {
			t.Fatalf("transaction %d has %v, want %v", i, got, names)
		}
		txn = c.Step(done(txn))
	}
	if txn != nil || len(c.lanes) > 0 {
		t.Errorf("then %+v, and %d lanes", txn, len(c.lanes))
	}
	txn = c.Step(heavy("evil", "a")) // no other namespace has changes
	if got := s.took(); txn == nil || !slices.Equal(got, []string{"evil/a"}) {
		t.Errorf("alone: %v", got)
	}
	for i := range 10 { // a namespace with permanent changes does not keep it waiting
		c.Step(heavy("evil", "a"))
		c.Step(of("victim", fmt.Sprint(i)))
		txn = c.Step(done(txn))
	}
	if n := len(s.took()); n < 14 {
		t.Errorf("%d changes, want 10 of the victim and about every other heavy one", n)
	}
}

// TestSlicesOfServiceAreOneChange: heavy EndpointSlices of one Service are in one transaction, and those of another Service in the next.
func TestSlicesOfServiceAreOneChange(t *testing.T) {
	c, s := fairly(t)
	held := c.Step(of("victim", "zero"))
	s.took()
	ev := &event.Update{Source: "test"}
	for _, name := range []string{"a-1", "b-1", "a-2", "b-2", "a-3"} {
		slice := &model.EndpointSlice{ID: model.SliceID{Namespace: "evil", Name: name}, Service: model.ServiceID{Namespace: "evil", Name: name[:1]}}
		slice.Ports, slice.Endpoints = make([]model.EndpointPort, 10), make([]model.Endpoint, heavyCost)
		ev.Changes = append(ev.Changes, event.Change{Ref: slice.Ref(), Object: slice})
	}
	c.Step(ev)
	txn := c.Step(done(held))
	for _, want := range [][]string{{"evil/a-1", "evil/a-2", "evil/a-3"}, {"evil/b-1", "evil/b-2"}} {
		if got := s.took(); txn == nil || !slices.Equal(got, want) {
			t.Fatalf("a transaction has %q, want %q", got, want)
		}
		txn = c.Step(done(txn))
	}
	if txn != nil || len(c.lanes) > 0 {
		t.Errorf("then %+v, and %d lanes", txn, len(c.lanes))
	}
}

// After any waiting, processors have the latest change of every object, and no lane is left.
func TestFairnessLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &seenBy{recorder: newRecorder()}
		c := New(Config{Sources: []string{"test"}}, s.values, s)
		c.Step(&event.VPPStatus{Connected: true})
		c.Step(done(c.Step(inSync("test"))))
		last, now := map[model.Ref]uint16{}, map[model.Ref]uint16{}
		c.cfg.Observer.Changed = func(ch event.Change) {
			if p, is := ch.Object.(*model.Policy); is {
				now[ch.Ref] = uint16(p.Order.Value)
			} else {
				now[ch.Ref] = ch.Object.(*model.Service).HealthCheckNodePort
			}
		}
		var txn *event.Txn
		step := func(ev event.Event) {
			if next := c.Step(ev); next != nil {
				txn = next
			}
		}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			ns, name, v := rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "ns"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"), uint16(i+1)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				ev := heavy(ns, name)
				p := *ev.Changes[0].Object.(*model.Policy)
				p.Order = model.OrderOf(float64(v))
				ev.Changes[0].Object = &p
				last[ev.Changes[0].Ref] = v
				step(ev)
			case 1:
				if txn != nil {
					was := txn
					txn = nil
					step(done(was))
				}
			default:
				ev := of(ns, name)
				ev.Changes[0].Object.(*model.Service).HealthCheckNodePort = v
				last[ev.Changes[0].Ref] = v
				step(ev)
			}
		}
		for txn != nil {
			was := txn
			txn = nil
			step(done(was))
		}
		if !maps.Equal(last, now) || len(c.lanes) > 0 {
			t.Fatalf("processors have %v, want %v; %d lanes", now, last, len(c.lanes))
		}
	})
}
