package vppagent_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// without are all descriptors but one.
func without(name string) []*descriptor.Descriptor {
	return slices.DeleteFunc(all.All(), func(d *descriptor.Descriptor) bool { return d.Name == name })
}

// A value without a descriptor is reported and stays wanted through all changes around it, until it is removed; an agent with the
// descriptor configures it.
func TestUnimplementedIsNeverLost(t *testing.T) {
	vrf := &l3.VrfTable{Id: 7, Label: "seven"}
	reject := &contivl3.RejectRoute{DstNetwork: "192.0.2.0/24"}
	key := kv.Key(vrf)
	l := newLab(t, vppagent.Config{Descriptors: without("vrf-table")})
	is := func(when string, want event.State) {
		t.Helper()
		snap := l.agent.Snapshot()
		for _, s := range snap.Values() {
			if s.Key != key {
				continue
			}
			if s.State != want || s.Since.IsZero() || want == event.Unimplemented && s.Err == "" || cmp.Diff(vrf, s.Value, protocmp.Transform()) != "" {
				t.Fatalf("%s: %+v, want %s", when, s, want)
			}
			if snap.Count(want) == 0 {
				t.Fatalf("%s: not counted", when)
			}
			return
		}
		t.Fatalf("%s: lost", when)
	}
	c := l.put(vrf, reject)
	if s := status(c, key); s.State != event.Unimplemented || s.State.String() != "UNIMPLEMENTED" || s.Err == "" {
		t.Fatalf("put: %+v", s)
	}
	if s := status(c, kv.Key(reject)); s.State != event.Configured {
		t.Fatalf("it keeps another from being configured: %+v", s)
	}
	is("put", event.Unimplemented)
	l.del(kv.Key(reject))
	is("another change", event.Unimplemented)
	l.resync()
	is("resync", event.Unimplemented)
	l.txn(event.Downstream, nil)
	is("downstream resync", event.Unimplemented)
	l.restartVPP()
	l.resync()
	is("restart of VPP", event.Unimplemented)
	plan, err := l.agent.Plan(t.Context(), &event.Txn{})
	if err != nil || len(plan.Levels) != 0 {
		t.Fatalf("plan %s, %v", plan, err)
	}
	l.cfg.Descriptors = nil
	l.restartAgent()
	l.resync()
	is("an agent that can", event.Configured)
	l.cfg.Descriptors = without("vrf-table")
	l.restartAgent()
	l.resync()
	is("an agent that cannot, once more", event.Unimplemented)
	if s := status(l.del(key), key); s.State != event.Removed {
		t.Fatalf("taken back: %+v", s)
	}
	if n := l.agent.Snapshot().Count(event.Unimplemented); n != 0 {
		t.Fatalf("%d are left", n)
	}
}

// A key without a model is wrong, not unimplemented; so is a key that does not belong to the value.
func TestUnimplementedIsNotInvalid(t *testing.T) {
	l := newLab(t, vppagent.Config{Descriptors: without("vrf-table")})
	key := kv.Key(&l3.VrfTable{Id: 8})
	c := l.commit(kv.Values{key: &l3.VrfTable{Id: 7}})
	if s := status(c, key); s.State != event.Invalid {
		t.Errorf("the key of another value: %+v", s)
	}
}
