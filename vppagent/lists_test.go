package vppagent_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// Lists returns the places and contents of ACLs whose actual state equals the desired state.
func TestLists(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	ctx, stop := context.WithCancel(t.Context())
	txns, events, done := make(chan *event.Txn), make(chan event.Event, 100), make(chan error, 1)
	go func() { done <- l.agent.Run(ctx, txns, func(e event.Event) { events <- e }) }()
	t.Cleanup(func() { stop(); <-done })
	ask := func(names ...string) []vppagent.Listed {
		t.Helper()
		got, err := l.agent.Lists(t.Context(), names...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got, err := l.agent.Lists(t.Context(), "tap1"); err == nil {
		t.Errorf("before VPP was looked at: %v", got)
	}
	any4 := func(action acl.ACL_Rule_Action, src string) *acl.ACL_Rule { return rule(action, "", src, "0.0.0.0/0") }
	a, b := accessList("a", any4(acl.ACL_Rule_REFLECT, "10.0.0.0/8")), accessList("b", any4(acl.ACL_Rule_DENY, "11.0.0.0/8"), any4(acl.ACL_Rule_REFLECT, "12.0.0.0/8"))
	both := accessList("both", rule(acl.ACL_Rule_DENY, "", "", "")) // two rules in VPP
	values := map[string]*acl.ACL{"a": a, "b": b, "both": both}
	wanted := kv.Values{}
	for _, m := range []proto.Message{a, b, both, lists("tap1", []string{"b", "both"}, []string{"a", "b"})} {
		wanted.Put(m)
	}
	txns <- &event.Txn{Seq: 1, Resync: event.Full, Values: wanted}
	<-events
	indices := map[string]uint32{}
	for _, at := range ask("tap1") {
		if at.Value != nil {
			indices[at.Value.GetName()] = at.Index
		}
	}
	want := []vppagent.Listed{
		{Interface: "tap1", Place: 0, Index: indices["b"], Value: values["b"]},
		{Interface: "tap1", Place: 1, Index: 2},
		{Interface: "tap1", Output: true, Place: 0, Index: indices["a"], Value: values["a"]},
		{Interface: "tap1", Output: true, Place: 1, Index: indices["b"], Value: values["b"]},
	}
	got := ask("tap1", "nowhere")
	for i := range got {
		if got[i].Value == nil {
			got[i].Index = 2 // any index
		}
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	if indices["a"] == indices["b"] {
		t.Errorf("indices %v", indices)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	stop()
	if err := <-done; err == nil {
		t.Error("Run ended by itself")
	}
	done <- nil
	if _, err := l.agent.Lists(stopped, "tap1"); err == nil {
		t.Error("answered by nobody")
	}
}
