package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// waited returns an event whose sender waits for the result.
func waited(ev *event.External) (*event.External, chan *event.ExternalResult) {
	result := make(chan *event.ExternalResult, 1)
	ev.Result = result
	return ev, result
}

func answerOf(t *testing.T, result chan *event.ExternalResult) *event.ExternalResult {
	t.Helper()
	select {
	case r := <-result:
		return r
	default:
		t.Fatal("no answer")
		return nil
	}
}

func unanswered(t *testing.T, result chan *event.ExternalResult) {
	t.Helper()
	if len(result) != 0 {
		t.Fatalf("answered too early: %+v", <-result)
	}
}

func TestAnswerComesWithTheTransactionThatHasTheValues(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	other := c.Step(update("a", 1))
	good, bad := dnat("x/good", 1), dnat("x/bad", 1)
	ev, result := waited(event.ExternalConfigChange("grpc", values(good, bad)))
	if txn := c.Step(ev); txn != nil {
		t.Fatalf("a second transaction in flight: %+v", txn)
	}
	txn := c.Step(done(other))
	unanswered(t, result) // the waiting event is not part of that transaction
	c.Step(&event.Committed{Seq: txn.Seq, Statuses: []event.ValueStatus{
		{Key: kv.Key(bad), State: event.Retrying, Err: "no memory"}, {Key: kv.Key(good), State: event.Configured},
	}})
	want := &event.ExternalResult{Seq: txn.Seq, Values: []event.ValueStatus{
		{Key: kv.Key(bad), State: event.Retrying, Err: "no memory"}, {Key: kv.Key(good), State: event.Configured},
	}}
	got := answerOf(t, result)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if b := got.Bad(); len(b) != 1 || b[0].Key != kv.Key(bad) {
		t.Errorf("bad: %v", b)
	}
	if st, found := got.State(kv.Key(good)); !found || st.State != event.Configured {
		t.Errorf("state of the good one: %v, %v", st, found)
	}
}

func TestAnswerAtOnceIfNothingHasToChange(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	msg := dnat("x/a", 1)
	c.Step(done(c.Step(event.ExternalConfigChange("grpc", values(msg)))))
	ev, result := waited(event.ExternalConfigChange("grpc", values(msg)))
	if txn := c.Step(ev); txn != nil {
		t.Errorf("the same again: %+v", txn)
	}
	if got := answerOf(t, result); got.Seq != 0 || got.Values[0].State != event.Configured {
		t.Errorf("answer %+v", got)
	}
	ev, result = waited(event.ExternalConfigChange("grpc", map[string]proto.Message{"config/vpp/nat/v2/dnat44/never": nil}))
	c.Step(ev)
	if got := answerOf(t, result); got.Seq != 0 || got.Values[0].State != event.Removed {
		t.Errorf("answer to deleting what never was: %+v", got)
	}
}

func TestAnswerOfAResyncHasWhatItRemoved(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	c.Step(done(c.Step(event.ExternalConfigChange("grpc", values(dnat("x/a", 1), dnat("x/b", 1))))))
	c.Step(done(c.Step(event.ExternalConfigChange("etcd", values(dnat("x/c", 1))))))
	ev, result := waited(event.ExternalConfigResync("grpc", values(dnat("x/b", 1))))
	txn := c.Step(ev)
	if got := kv.Values(txn.Values).Keys(); !slices.Equal(got, []string{"config/vpp/nat/v2/dnat44/x/a"}) {
		t.Errorf("resync changes %v, want only what that source no longer wants", got)
	}
	c.Step(done(txn))
	want := []event.ValueStatus{
		{Key: "config/vpp/nat/v2/dnat44/x/a", State: event.Removed}, {Key: "config/vpp/nat/v2/dnat44/x/b", State: event.Configured},
	}
	if diff := cmp.Diff(want, answerOf(t, result).Values); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestAnswerWhileVPPIsAway(t *testing.T) {
	r := newRecorder()
	c := start(t, r, Config{})
	ev, result := waited(event.ExternalConfigChange("grpc", values(dnat("x/a", 1))))
	txn := c.Step(ev)
	away := errors.New("vpp is away")
	c.Step(&event.Committed{Seq: txn.Seq, Err: away})
	if got := answerOf(t, result); !errors.Is(got.Err, away) || got.Values[0].State != event.Pending {
		t.Errorf("answer %+v, want the error and PENDING", got)
	}
}

func TestWrongValuesAreRefusedAsAWhole(t *testing.T) {
	r := newRecorder()
	var trouble error
	c := start(t, r, Config{Observer: Observer{Trouble: func(err error) { trouble = err }}})
	for name, bad := range map[string]map[string]proto.Message{
		"key of another":        {"config/vpp/nat/v2/dnat44/other": dnat("x/a", 1), kv.Key(dnat("x/b", 1)): dnat("x/b", 1)},
		"key of another type":   {kv.Key(dnat("x/a", 1)): &interfaces.Interface{Name: "x/a"}},
		"a type with no key":    {"config/x": &nat.DNat44_StaticMapping{}},
		"a label that climbs":   {kv.Key(&nat.DNat44{Label: "../nat44-global"}): &nat.DNat44{Label: "../nat44-global"}},
		"an empty key, no name": {"": &nat.DNat44{}},
	} {
		trouble = nil
		ev, result := waited(event.ExternalConfigChange("grpc", bad))
		if txn := c.Step(ev); txn != nil {
			t.Errorf("%s: changed %v", name, txn.Values)
		}
		if got := answerOf(t, result); got.Err == nil || got.Seq != 0 || len(got.Values) != 0 || trouble == nil {
			t.Errorf("%s: answer %+v, observer got %v", name, got, trouble)
		}
	}
}

// An error about a large invalid event is short, and the controller records nothing of the event.
func TestErrorOfLargeEventIsShort(t *testing.T) {
	r := newRecorder()
	var got error
	c := New(Config{Observer: Observer{Trouble: func(err error) { got = err }}}, r.values, r)
	c.Step(&event.VPPStatus{Connected: true})
	wrong := map[string]proto.Message{}
	for i := range 20_000 {
		wrong[fmt.Sprintf("config/vpp/v2/interfaces/%d", i)] = &interfaces.Interface{Name: strings.Repeat("x", i)}
	}
	if txn := c.Step(event.ExternalConfigChange("x", wrong)); txn != nil {
		t.Errorf("it leads to %v", txn)
	}
	if got == nil || len(got.Error()) > 200_000 || !strings.HasSuffix(got.Error(), "and 19900 more") || !errors.Is(got, kv.ErrKeyMismatch) {
		t.Errorf("%.500v", got)
	}
	if n := len(r.values.changedValues(nil)); n != 0 {
		t.Errorf("%d values are noted", n)
	}
}

func TestFirstSyncWaitsForExternalSources(t *testing.T) {
	r := newRecorder()
	var told []string
	c := connected(Config{Sources: []string{"etcd", "test"}, Observer: Observer{Source: func(s *event.SyncStatus) { told = append(told, s.Source) }}}, r)
	if txn := c.Step(inSync("test")); txn != nil {
		t.Fatalf("before etcd said what it wants: %+v", txn)
	}
	if txn := c.Step(event.ExternalConfigChange("etcd", values(dnat("x/b", 1)))); txn != nil {
		t.Fatalf("after a mere change: %+v", txn)
	}
	ev, result := waited(event.ExternalConfigResync("etcd", values(dnat("x/a", 1))))
	txn := c.Step(ev)
	if txn == nil || txn.Resync != event.Full || len(txn.Values) != 1 {
		t.Fatalf("first sync: %+v, want etcd's one value in it", txn)
	}
	unanswered(t, result)
	c.Step(done(txn))
	if got := answerOf(t, result); got.Seq != txn.Seq || got.Values[0].State != event.Configured {
		t.Errorf("answer %+v", got)
	}
	if !slices.Equal(told, []string{"test", "etcd"}) {
		t.Errorf("observer saw %v in sync", told)
	}
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		c := connected(Config{Sources: []string{"grpc"}}, r)
		ctx, cancel := context.WithCancel(t.Context())
		in, out := make(chan event.Event, 8), make(chan *event.Txn, 1)
		go func() { _ = c.Run(ctx, in, out) }()
		emit := func(ev event.Event) { in <- ev }
		go func() { in <- done(<-out) }()
		got, err := event.Await(ctx, emit, event.ExternalConfigResync("grpc", values(dnat("x/a", 1))))
		if err != nil || got.Values[0].State != event.Configured {
			t.Errorf("answer %+v, %v", got, err)
		}
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if _, err = event.Await(short, emit, event.ExternalConfigChange("grpc", values(dnat("x/b", 1)))); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody carries it out: %v", err)
		}
		go func() { time.Sleep(time.Second); cancel() }()
		got, err = event.Await(t.Context(), emit, event.ExternalConfigChange("grpc", values(dnat("x/c", 1))))
		if err != nil || !errors.Is(got.Err, ErrStopped) {
			t.Errorf("the loop ended: %+v, %v", got, err)
		}
	})
}

// world is the desired state of all owners and sources, input of the literal definition below.
type world struct {
	internal, external map[string]map[string]proto.Message
}

func (w *world) put(to map[string]map[string]proto.Message, who string, msgs map[string]proto.Message) {
	if to[who] == nil {
		to[who] = map[string]proto.Message{}
	}
	for key, m := range msgs {
		if to[who][key] = m; m == nil {
			delete(to[who], key)
		}
	}
}

// merged is the definition: the internal value is the destination; the external values are merged into it in the order of their
// sources' names.
func (w *world) merged() map[string]proto.Message {
	out := map[string]proto.Message{}
	for _, owner := range slices.Backward(slices.Sorted(maps.Keys(w.internal))) { // the owner that sorts first decides
		for key, m := range w.internal[owner] {
			out[key] = proto.Clone(m)
		}
	}
	for _, source := range slices.Sorted(maps.Keys(w.external)) {
		for key, m := range w.external[source] {
			if out[key] == nil {
				out[key] = m.ProtoReflect().New().Interface()
			}
			proto.Merge(out[key], m)
		}
	}
	return out
}

func bytesOf(values map[string]proto.Message) map[string]string {
	out := map[string]string{}
	for key, m := range values {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			panic(err)
		}
		out[key] = string(b)
	}
	return out
}

// drawn returns a value for one of few keys, with scalars, lists and nested messages, so that merges happen.
func drawn(t *rapid.T) proto.Message {
	n := rapid.IntRange(0, 3).Draw(t, "n")
	name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		m := &nat.DNat44{Label: name}
		for i := range n {
			m.StMappings = append(m.StMappings, &nat.DNat44_StaticMapping{ExternalIp: "10.96.0.1", ExternalPort: uint32(i * n)})
		}
		return m
	case 1:
		m := &interfaces.Interface{Name: name, Enabled: n > 1, Mtu: uint32(n), Vrf: uint32(n / 2)}
		for i := range n {
			m.IpAddresses = append(m.IpAddresses, fmt.Sprintf("10.0.%d.%d/24", n, i))
		}
		if n > 1 {
			m.RxModes = []*interfaces.Interface_RxMode{{Queue: uint32(n)}}
			m.Link = &interfaces.Interface_Tap{Tap: &interfaces.TapLink{Version: uint32(n)}}
		}
		return m
	}
	return &nat.Nat44Global{Forwarding: n > 1, VirtualReassembly: &nat.VirtualReassembly{MaxReassemblies: uint32(n), DropFragments: n == 2}}
}

// TestMergeIsItsDefinition: for any sequence of internal and external values, the controller sends VPP the result of the literal
// definition. It modifies no input value. Without the external sources, VPP has the internal state again, byte for byte.
func TestMergeIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRecorder()
		c := New(Config{}, r.values, r)
		vpp := map[string]proto.Message{}
		apply := func(txn *event.Txn) { applied(c, vpp, txn) }
		apply(c.Step(&event.VPPStatus{Connected: true}))
		w := &world{internal: map[string]map[string]proto.Message{}, external: map[string]map[string]proto.Message{}}
		said := map[proto.Message]string{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			msgs := map[string]proto.Message{}
			for range rapid.IntRange(0, 3).Draw(t, "values") {
				m := drawn(t)
				msgs[kv.Key(m)] = m
				said[m] = bytesOf(map[string]proto.Message{"": m})[""]
			}
			who := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "who")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				delete(w.internal, who)
				w.put(w.internal, who, msgs)
				r.values.Set(who, msgs, nil)
				apply(c.Step(&event.Tick{}))
			case 1:
				delete(w.external, who)
				w.put(w.external, who, msgs)
				apply(c.Step(event.ExternalConfigResync(who, msgs)))
			case 2:
				for key := range msgs {
					msgs[key] = nil
				}
				fallthrough
			default:
				w.put(w.external, who, msgs)
				apply(c.Step(event.ExternalConfigChange(who, msgs)))
			}
			if diff := cmp.Diff(bytesOf(w.merged()), bytesOf(vpp)); diff != "" {
				t.Fatalf("VPP (-definition +sent):\n%s", diff)
			}
		}
		for _, source := range rapid.Permutation(slices.Sorted(maps.Keys(w.external))).Draw(t, "gone") {
			apply(c.Step(event.ExternalConfigResync(source, nil)))
			delete(w.external, source)
		}
		if diff := cmp.Diff(bytesOf(w.merged()), bytesOf(vpp)); diff != "" {
			t.Fatalf("without external sources (-internal +sent):\n%s", diff)
		}
		for m, was := range said {
			if now := bytesOf(map[string]proto.Message{"": m})[""]; now != was {
				t.Fatalf("merging changed what somebody said: %v", m)
			}
		}
	})
}

func TestLaterNamesAreMergedOverEarlier(t *testing.T) {
	tap := func(mtu uint32, addrs ...string) *interfaces.Interface {
		return &interfaces.Interface{Name: "tap1", Mtu: mtu, IpAddresses: addrs}
	}
	want := tap(9000, "10.0.0.1/24", "10.0.1.1/24", "10.0.2.1/24")
	for _, order := range [][]string{{"etcd", "grpc"}, {"grpc", "etcd"}} {
		v := NewValues()
		v.Set("owner", values(tap(1500, "10.0.0.1/24")), nil)
		for _, source := range order {
			v.SetExternal(event.ExternalConfigChange(source, map[string]map[string]proto.Message{
				"etcd": values(tap(1400, "10.0.1.1/24")), "grpc": values(tap(9000, "10.0.2.1/24")),
			}[source]))
		}
		if diff := cmp.Diff(proto.Message(want), v.changedValues(nil)["config/vpp/v2/interfaces/tap1"], protocmp.Transform()); diff != "" {
			t.Errorf("said in the order %s (-want +got):\n%s", strings.Join(order, ", "), diff)
		}
	}
}

// TestMergeByOption: merge terms belong to one value. They end when the source sends the value without them or deletes it.
func TestMergeByOption(t *testing.T) {
	const key = "config/vpp/v2/interfaces/tap1"
	tap := func(mtu uint32, addrs ...string) *interfaces.Interface {
		return &interfaces.Interface{Name: "tap1", Mtu: mtu, IpAddresses: addrs}
	}
	internal := tap(1500, "10.0.0.1/24")
	v := NewValues()
	v.Set("owner", values(internal), nil)
	v.changedValues(nil)
	for i, step := range []struct {
		ev    *event.External
		merge string
		want  *interfaces.Interface
	}{
		{event.ExternalConfigChange("b", values(tap(0, "10.0.1.1/24"))), "replace=ip_addresses,mtu", tap(0, "10.0.1.1/24")},
		{event.ExternalConfigChange("a", values(tap(9000, "10.0.1.1/24"))), "", tap(0, "10.0.1.1/24")},
		{event.ExternalConfigChange("b", values(tap(0, "10.0.1.1/24"))), "once", tap(9000, "10.0.0.1/24", "10.0.1.1/24")},
		{event.ExternalConfigResync("b", values(tap(0, "10.0.1.1/24"))), "", tap(9000, "10.0.0.1/24", "10.0.1.1/24", "10.0.1.1/24")},
		{event.ExternalConfigResync("a", nil), "", tap(1500, "10.0.0.1/24", "10.0.1.1/24")},
		{event.ExternalConfigChange("b", values(tap(0))), "replace", tap(0)},
		{event.ExternalConfigChange("b", map[string]proto.Message{key: nil}), "", internal},
		{event.ExternalConfigChange("b", values(tap(0, "10.0.1.1/24"))), "", tap(1500, "10.0.0.1/24", "10.0.1.1/24")},
	} {
		m, err := event.ParseMerge(step.merge)
		if err != nil {
			t.Fatal(err)
		}
		step.ev.Merge = map[string]event.Merge{key: m}
		v.SetExternal(step.ev)
		v.changedValues(nil)
		if diff := cmp.Diff(proto.Message(step.want), v.Sent(key), protocmp.Transform()); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	if !proto.Equal(internal, tap(1500, "10.0.0.1/24")) {
		t.Error("the agent's own value was changed")
	}
	wrong := event.ExternalConfigChange("b", values(tap(0)))
	wrong.Merge = map[string]event.Merge{key: {Replace: []string{"address"}}}
	if err := checkExternal(wrong); err == nil {
		t.Error("a field that there is not: no error")
	}
}
