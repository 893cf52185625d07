package vppagent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// Drift reports every change of another client to the desired state, and repairs none.
func TestDrift(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	ctx, stop := context.WithCancel(t.Context())
	txns, events, done := make(chan *event.Txn), make(chan event.Event, 100), make(chan error, 1)
	go func() { done <- l.agent.Run(ctx, txns, func(e event.Event) { events <- e }) }()
	t.Cleanup(func() { stop(); <-done })
	if plan, err := l.agent.Drift(t.Context(), false); err == nil || !strings.Contains(err.Error(), "nothing is known to be wanted yet") {
		t.Errorf("before anything is wanted: %v, %v", plan, err)
	}
	wanted := kv.Values{}
	web := dnat("default/web", "10.96.0.1", 80, "10.1.1.1:80")
	for _, m := range append(node(), web, dnat("default/db", "10.96.0.2", 80, "10.1.1.2:80")) {
		wanted.Put(m)
	}
	txns <- &event.Txn{Seq: 1, Resync: event.Full, Values: wanted}
	<-events
	l.writes()
	plan, err := l.agent.Drift(t.Context(), false)
	if err != nil || !plan.Empty() {
		t.Fatalf("VPP is as it is wanted: %v, %v", plan, err)
	}
	delete(wanted, kv.Key(web)) // by another agent
	if c := vppagent.New(l.cfg).Commit(t.Context(), &event.Txn{Seq: 1, Resync: event.Full, Values: wanted}); c.Err != nil || c.Del != 1 {
		t.Fatalf("%+v", c)
	}
	before := l.sim.Dump()
	l.writes()
	if plan, err = l.agent.Drift(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	l.quiet("a look")
	text := plan.String()
	if len(plan.Levels) != 1 || len(plan.Levels[0]) != 1 || !strings.HasPrefix(text, "create config/vpp/nat/v2/dnat44/default/web\n    nat44_") || !strings.HasSuffix(text, "cuts 0 NAT sessions\n") {
		t.Errorf("a Service is missing:\n%s", text)
	}
	if after := l.sim.Dump(); after != before {
		t.Errorf("a look changed VPP:\n%s", after)
	}
	encoded, err := plan.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var read vppagent.Plan
	if err := json.Unmarshal(encoded, &read); err != nil || read.String() != plan.String() {
		t.Errorf("read back: %v\n%s\nwant\n%s", err, &read, plan)
	}
	if err := json.Unmarshal([]byte(`{"levels":[[{"action":"nothing"}]]}`), &read); err == nil {
		t.Error("an action that is none is read")
	}
	l.agent.Connected(vpp.State{})
	if plan, err := l.agent.Drift(t.Context(), false); err == nil {
		t.Errorf("while VPP is away: %v", plan)
	}
}
