package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// recorder is a processor that wants one DNat44 per Service it knows.
type recorder struct {
	values *Values
	dirty  map[model.Ref]model.Object
	locate *event.Locate
	err    error
	calls  []string
}

func newRecorder() *recorder {
	return &recorder{values: NewValues(), dirty: map[model.Ref]model.Object{}}
}

func (r *recorder) Apply(ch event.Change) {
	if ch.Err != nil {
		ch.Object = nil
	}
	r.dirty[ch.Ref] = ch.Object
}
func (r *recorder) Located(*event.Located) { r.calls = append(r.calls, "located") }
func (r *recorder) Resync() error          { r.calls = append(r.calls, "resync"); return r.Flush() }

func (r *recorder) Flush() error {
	for ref, obj := range r.dirty {
		owner := "service/" + ref.Namespace + "/" + ref.Name
		if svc, ok := obj.(*model.Service); ok {
			r.values.Set(owner, values(dnat(svc.ID.String(), svc.HealthCheckNodePort)), nil)
		} else {
			r.values.Set(owner, nil, nil)
		}
	}
	clear(r.dirty)
	return r.err
}

func (r *recorder) Locate(time.Time) *event.Locate {
	ask := r.locate
	r.locate = nil
	return ask
}

func dnat(label string, port uint16) *nat.DNat44 {
	return &nat.DNat44{Label: label, StMappings: []*nat.DNat44_StaticMapping{{ExternalIp: "10.96.0.1", ExternalPort: uint32(port)}}}
}

func values(msgs ...proto.Message) map[string]proto.Message {
	out := kv.Values{}
	for _, m := range msgs {
		out.Put(m)
	}
	return out
}

func update(name string, port uint16) *event.Update {
	svc := &model.Service{ID: model.ServiceID{Namespace: "default", Name: name}, HealthCheckNodePort: port}
	return &event.Update{Source: "test", Changes: []event.Change{{Ref: svc.Ref(), Object: svc}}}
}

func remove(name string) *event.Update {
	return &event.Update{Source: "test", Changes: []event.Change{{Ref: model.Ref{Kind: model.KindService, Namespace: "default", Name: name}}}}
}

func inSync(source string) *event.SyncStatus {
	return &event.SyncStatus{Source: source, Status: event.InSync}
}

// connected returns a controller that received VPP's status.
func connected(cfg Config, r *recorder) *Controller {
	c := New(cfg, r.values, r)
	c.Step(&event.VPPStatus{Connected: true, Generation: 1})
	return c
}

func done(txn *event.Txn) *event.Committed { return &event.Committed{Seq: txn.Seq} }

// start completes a controller's first sync.
func start(t *testing.T, r *recorder, cfg Config) *Controller {
	t.Helper()
	cfg.Sources = []string{"test"}
	c := connected(cfg, r)
	txn := c.Step(inSync("test"))
	if txn == nil || txn.Resync != event.Full {
		t.Fatalf("first transaction: %+v, want a full resync", txn)
	}
	if next := c.Step(done(txn)); next != nil {
		t.Fatalf("after the first sync: %+v, want nothing", next)
	}
	return c
}

func TestNothingBeforeEverySourceIsInSync(t *testing.T) {
	r := newRecorder()
	c := New(Config{Sources: []string{"a", "b"}}, r.values, r)
	for _, ev := range []event.Event{
		update("web", 1), inSync("a"), &event.Tick{Now: time.Unix(1, 0)},
		&event.VPPStatus{Connected: true}, &event.SyncStatus{Source: "b", Status: event.ResyncInProgress},
	} {
		if txn := c.Step(ev); txn != nil {
			t.Fatalf("%T: sent %+v before b was in sync", ev, txn)
		}
	}
	txn := c.Step(inSync("b"))
	want := &event.Txn{Seq: 1, Cause: "first sync", Resync: event.Full, Values: values(dnat("default/web", 1))}
	if diff := cmp.Diff(want, txn, protocmp.Transform()); diff != "" {
		t.Errorf("first transaction (-want +got):\n%s", diff)
	}
}

func TestNothingBeforeVPPIsConnected(t *testing.T) {
	r := newRecorder()
	c := New(Config{Sources: []string{"test"}}, r.values, r)
	if txn := c.Step(inSync("test")); txn != nil {
		t.Fatalf("sent %+v to nobody", txn)
	}
	if txn := c.Step(&event.VPPStatus{Connected: true}); txn == nil || txn.Resync != event.Full {
		t.Errorf("VPP is there: %+v, want the full resync", txn)
	}
}

func TestFirstSyncWaitsForInterfaces(t *testing.T) {
	r := newRecorder()
	r.locate = &event.Locate{}
	c := connected(Config{Sources: []string{"test"}}, r)
	txn := c.Step(inSync("test"))
	if txn == nil || txn.Locate == nil || txn.Resync != event.NoResync {
		t.Fatalf("first transaction %+v: want a bare Locate", txn)
	}
	if next := c.Step(done(txn)); next != nil {
		t.Fatalf("before the answer: %+v", next)
	}
	if next := c.Step(&event.Located{}); next == nil || next.Resync != event.Full {
		t.Fatalf("after the answer: %+v, want the full resync", next)
	}
	if want := []string{"located", "resync"}; !slices.Equal(r.calls, want) {
		t.Errorf("processor saw %v, want %v", r.calls, want)
	}
}

func TestOneTransactionInFlight(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	first := c.Step(update("a", 1))
	if first == nil || first.Cause != "service/default/a" {
		t.Fatalf("first: %+v", first)
	}
	for _, ev := range []event.Event{update("b", 1), update("c", 1), update("b", 2)} {
		if txn := c.Step(ev); txn != nil {
			t.Fatalf("a second transaction in flight: %+v", txn)
		}
	}
	next := c.Step(done(first))
	want := &event.Txn{Seq: 3, Cause: "service/default/b and 1 more", Values: values(dnat("default/b", 2), dnat("default/c", 1))}
	if diff := cmp.Diff(want, next, protocmp.Transform()); diff != "" {
		t.Errorf("accumulated (-want +got):\n%s", diff)
	}
}

func TestUnchangedObjectIsNoTransaction(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	c.Step(done(c.Step(update("a", 1))))
	if txn := c.Step(update("a", 1)); txn != nil {
		t.Errorf("same object again: %+v", txn)
	}
	if txn := c.Step(remove("nobody")); txn != nil {
		t.Errorf("removing what never was: %+v", txn)
	}
}

func TestRevertedChangeIsNoTransaction(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	c.Step(done(c.Step(update("a", 1))))
	other := c.Step(update("b", 1))
	c.Step(update("a", 2)) // while another transaction is in flight
	c.Step(update("a", 1))
	if txn := c.Step(done(other)); txn != nil {
		t.Errorf("a changed and changed back: %+v", txn)
	}
}

func TestRefusedObjectIsRemovedAndReported(t *testing.T) {
	r := newRecorder()
	var seen []string
	c := start(t, r, Config{Observer: Observer{Refused: func(ch event.Change) { seen = append(seen, ch.Err.Error()) }}})
	c.Step(done(c.Step(update("a", 1))))
	bad := remove("a")
	bad.Changes[0].Err = errors.New("Service default/a: spec.ports[0].port: must be 1 to 65535 (0)")
	txn := c.Step(bad)
	if txn == nil || len(txn.Values) != 1 || txn.Values[kv.Key(dnat("default/a", 1))] != nil {
		t.Errorf("refused object: %+v, want one delete", txn)
	}
	if len(seen) != 1 || len(c.Status().Refused) != 1 {
		t.Errorf("reported %v, status %v: want one each", seen, c.Status().Refused)
	}
	c.Step(done(txn))
	c.Step(update("a", 1))
	if n := len(c.Status().Refused); n != 0 {
		t.Errorf("%d refusals left after the object was mended", n)
	}
}

func TestExternalIsMergedOverInternal(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	c.Step(done(c.Step(update("a", 1))))
	key := kv.Key(dnat("default/a", 1))
	ext := &nat.DNat44{Label: "default/a", StMappings: []*nat.DNat44_StaticMapping{{ExternalIp: "192.0.2.7", ExternalPort: 9}}}
	txn := c.Step(&event.External{Source: "grpc", Values: map[string]proto.Message{key: ext}})
	if again := c.Step(&event.External{Source: "grpc", Values: map[string]proto.Message{key: ext}}); again != nil {
		t.Errorf("in flight: %+v", again)
	}
	if again := c.Step(done(txn)); again != nil {
		t.Errorf("the same external item again: %+v", again)
	}
	merged := txn.Values[key].(*nat.DNat44)
	if len(merged.StMappings) != 2 || merged.StMappings[0].ExternalIp != "10.96.0.1" {
		t.Errorf("merged value: %v, want the internal mapping, then the external one", merged)
	}
	txn = c.Step(&event.External{Source: "grpc", Resync: true})
	if got := txn.Values[key].(*nat.DNat44); len(got.StMappings) != 1 {
		t.Errorf("external item withdrawn: %v, want the internal value alone", got)
	}
}

func TestSharedKeyIsRemovedWithItsLastOwner(t *testing.T) {
	v := NewValues()
	shared := values(dnat("shared", 1))
	v.Set("b", shared, nil)
	v.Set("a", values(dnat("shared", 2)), nil)
	key := kv.Key(dnat("shared", 1))
	if got := v.changedValues(nil)[key].(*nat.DNat44).StMappings[0].ExternalPort; got != 2 {
		t.Errorf("port %d: the owner that sorts first decides, want 2", got)
	}
	v.Set("a", nil, nil)
	if got := v.changedValues(nil)[key].(*nat.DNat44).StMappings[0].ExternalPort; got != 1 {
		t.Errorf("port %d after a went, want 1 from b", got)
	}
	v.Set("b", nil, nil)
	if got, there := v.changedValues(nil)[key]; got != nil || !there {
		t.Errorf("after the last owner went: %v, want a delete", got)
	}
}

func TestStatusNamesUnwellValues(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	txn := c.Step(update("a", 1))
	key := kv.Key(dnat("default/a", 1))
	c.Step(&event.Committed{Seq: txn.Seq, Statuses: []event.ValueStatus{{Key: key, State: event.Retrying, Err: "no memory"}}})
	owners := c.Owners("service/")
	if len(owners) != 1 || owners[0].State() != event.Retrying {
		t.Fatalf("owners: %+v, want one, RETRYING", owners)
	}
	c.Step(&event.Committed{Statuses: []event.ValueStatus{{Key: key, State: event.Configured}}})
	if owners = c.Owners("service/"); owners[0].State() != event.Configured {
		t.Errorf("after the retry: %v", owners[0].State())
	}
}

func TestHealthToleratesATransactionUnderWayButNotForEver(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	at := time.Unix(1000, 0)
	c.Step(&event.Tick{Now: at})
	c.Step(update("a", 1))
	if st := c.Status(); st.Synced() || !st.Healthy() {
		t.Errorf("under way: synced %v, healthy %v, want false, true", st.Synced(), st.Healthy())
	}
	c.Step(&event.VPPStatus{})
	if st := c.Status(); st.Healthy() {
		t.Error("healthy without VPP")
	}
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(&event.SyncStatus{Source: "test", Status: event.ResyncInProgress})
	if st := c.Status(); st.Healthy() {
		t.Error("healthy while a source is not in sync")
	}
	c.Step(inSync("test"))
	c.Step(&event.Tick{Now: at.Add(overdue + time.Second)})
	if st := c.Status(); st.Healthy() {
		t.Error("healthy though VPP has not answered for long")
	}
}

func TestRendererTroubleIsReported(t *testing.T) {
	r := newRecorder()
	var got error
	c := start(t, r, Config{Observer: Observer{Trouble: func(err error) { got = err }}})
	r.err = errors.New("renderer is unwell")
	if txn := c.Step(update("a", 1)); txn == nil {
		t.Error("trouble of one renderer stopped the transaction")
	}
	if got == nil || c.Status().Trouble == nil {
		t.Error("trouble was not reported")
	}
}

// applied applies a transaction, and all that follow from it, to a model of VPP's state.
func applied(c *Controller, vpp map[string]proto.Message, txn *event.Txn) {
	for txn != nil {
		if txn.Resync == event.Full {
			clear(vpp)
		}
		for key, msg := range txn.Values {
			if vpp[key] = msg; msg == nil {
				delete(vpp, key)
			}
		}
		txn = c.Step(done(txn))
	}
}

// TestPathIndependence: the union of transactions does not depend on order, splitting or repetition of changes.
func TestPathIndependence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		final := map[string]uint16{}
		r := newRecorder()
		c := connected(Config{Sources: []string{"test"}}, r)
		vpp := map[string]proto.Message{}
		apply := func(txn *event.Txn) { applied(c, vpp, txn) }
		syncAt := rapid.IntRange(0, 20).Draw(t, "syncAt")
		for i := range 20 {
			if i == syncAt {
				apply(c.Step(inSync("test")))
			}
			name := fmt.Sprintf("s%d", rapid.IntRange(0, 4).Draw(t, "name"))
			if rapid.Bool().Draw(t, "delete") {
				delete(final, name)
				apply(c.Step(remove(name)))
				continue
			}
			port := uint16(rapid.IntRange(1, 3).Draw(t, "port"))
			final[name] = port
			apply(c.Step(update(name, port)))
		}
		apply(c.Step(inSync("test")))
		want := map[string]proto.Message{}
		for name, port := range final {
			kv.Values(want).Put(dnat("default/"+name, port))
		}
		if diff := cmp.Diff(want, vpp, protocmp.Transform()); diff != "" {
			t.Errorf("VPP (-want +got):\n%s", diff)
		}
	})
}

func TestRunSendsTransactionsAndAnswersAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		c := connected(Config{Sources: []string{"test"}}, r)
		ctx, cancel := context.WithCancel(t.Context())
		in, out, ended := make(chan event.Event), make(chan *event.Txn, 1), make(chan error, 1)
		go func() { ended <- c.Run(ctx, in, out) }()
		in <- inSync("test")
		if txn := <-out; txn.Resync != event.Full {
			t.Errorf("first: %+v", txn)
		}
		var st Status
		if err := c.Ask(ctx, func(c *Controller) { st = c.Status() }); err != nil || !st.Started || st.InFlight != 1 {
			t.Errorf("status %+v, %v", st, err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
		if err := c.Ask(t.Context(), func(*Controller) {}); !errors.Is(err, ErrStopped) {
			t.Errorf("Ask after the end: %v", err)
		}
	})
}

// The node's clock may be set: the heartbeat has a monotonic reading. Times in a bubble of synctest have none.
func TestBeatDoesNotDependOnTheClock(t *testing.T) {
	c := connected(Config{Sources: []string{"test"}}, newRecorder())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, make(chan event.Event), make(chan *event.Txn, 1)) }()
	if err := c.Ask(ctx, func(*Controller) {}); err != nil {
		t.Fatal(err)
	}
	if beat := c.Beat().String(); !strings.Contains(beat, " m=") {
		t.Error(beat)
	}
	cancel()
	<-ended
}

func BenchmarkStepOneServiceOfTenThousand(b *testing.B) {
	r := newRecorder()
	c := connected(Config{Sources: []string{"test"}}, r)
	for i := range 10_000 {
		c.Step(update(fmt.Sprintf("s%d", i), 1))
	}
	c.Step(done(c.Step(inSync("test"))))
	b.ReportAllocs()
	port := uint16(2)
	for b.Loop() {
		port++
		if txn := c.Step(update("s77", port)); len(txn.Values) != 1 {
			b.Fatal("not one value")
		} else {
			c.Step(done(txn))
		}
	}
}

// A successful lookup does not make an agent ready: VPP has no configuration yet.
func TestNotHealthyBeforeTheFirstSyncIsDone(t *testing.T) {
	r := newRecorder()
	c := New(Config{Sources: []string{"test"}}, r.values, r)
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(&event.Committed{Resync: event.Downstream}) // VPP was not compared with the desired state
	first := c.Step(inSync("test"))
	for first != nil && first.Resync != event.Full {
		if first = c.Step(done(first)); first == nil {
			first = c.Step(&event.Located{})
		}
	}
	if first == nil {
		t.Fatal("no first sync")
	}
	if st := c.Health(); st.Healthy() {
		t.Errorf("the first sync is under way: %+v", st)
	}
	c.Step(done(first))
	if st := c.Health(); !st.Healthy() {
		t.Errorf("the first sync is done: %+v", st)
	}
}
