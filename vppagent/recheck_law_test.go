package vppagent_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// recheckLaw: the agent finds a foreign change or removal of a value within a round, as a drift of its kind, and repairs it; then a fresh
// agent finds the same VPP. state shows VPP as text, or is nil.
func recheckLaw(t *testing.T, caller vppagent.Caller, law *law, state func() string, seen map[string]bool) {
	t.Helper()
	now := time.Unix(1_700_000_000, 0)
	ours := vppagent.New(vppagent.Config{Caller: caller, Recheck: roundTime, Now: func() time.Time { return now }})
	commit := func(a *vppagent.Agent, kind event.ResyncKind, values map[string]proto.Message) *event.Committed {
		t.Helper()
		c := a.Commit(context.Background(), &event.Txn{Resync: kind, Values: values})
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		return c
	}
	rounds := func() (found []event.Drift) {
		for range 3 * int(roundTime/time.Second) {
			now = now.Add(time.Second)
			for _, e := range ours.Step(context.Background(), nil) {
				if c, ok := e.(*event.Committed); ok {
					found = append(found, c.Drift...)
				}
			}
		}
		return found
	}
	want := kv.Values{}
	for _, m := range append(law.needs, law.one) {
		want.Put(m)
	}
	commit(ours, event.Full, want)
	defer func() { commit(ours, event.Full, kv.Values{}) }()
	if found := rounds(); len(found) > 0 {
		t.Errorf("an unchanged VPP: %v", found)
	}
	before := state()
	one, two := kv.Key(law.one), kv.Key(law.two)
	changed := map[string]proto.Message{two: law.two}
	if two != one {
		changed[one] = nil
	}
	for what, theirs := range map[string]map[string]proto.Message{"update": changed, "delete": {one: nil}} {
		if what == "update" && law.adds() {
			continue // an object that the other agent adds beside belongs to it
		}
		other := vppagent.New(vppagent.Config{Caller: caller})
		commit(other, event.Full, want)
		if c := commit(other, event.NoResync, theirs); c.Writes == 0 {
			t.Fatalf("%s: nothing is written", what)
		}
		found := rounds()
		for _, d := range found {
			if seen[d.Kind] = true; !d.Repaired {
				t.Errorf("%s: %v", what, d)
			}
		}
		if len(found) == 0 {
			t.Errorf("%s: nothing is found", what)
		}
		if after := state(); canonical(after) != canonical(before) {
			t.Errorf("%s: found %v\n%s\nwant\n%s", what, found, after, before)
		}
		if c := commit(vppagent.New(vppagent.Config{Caller: caller}), event.Full, want); c.Writes > 0 {
			t.Errorf("%s: an agent who knows nothing writes %d times after the repair:\n%s", what, c.Writes, statuses(c))
		}
	}
}

// adds reports that VPP has several objects for one value, or for two, and no tag on them.
func (law *law) adds() bool {
	switch law.kind {
	case "nat44-global", "nat44-settings", "nat44-interface", "cnat-snat-policy", "cnat-interface", "ip-scan-neighbor":
		return false
	}
	for _, d := range all.All() {
		if d.Name == law.kind {
			return !d.Tagged || d.Name == "proxy-arp-interface"
		}
	}
	return true
}

func TestRecheckLaws(t *testing.T) {
	seen := map[string]bool{}
	for _, law := range laws() {
		if law.kind == "interface" {
			continue // VPP sends events for deleted interfaces
		}
		t.Run(law.kind, func(t *testing.T) {
			l := newLab(t, vppagent.Config{})
			recheckLaw(t, l.conn, &law, l.sim.Dump, seen)
		})
	}
	for _, d := range all.All() {
		elsewhere := map[string]string{ // VPP has these as objects of another kind
			"interface": "VPP tells of it", "sctp-ports": "sctp-filter", "source-ranges": "acl-source-ranges", "source-ranges-enforced": "interface-acls",
		}
		if !seen[d.Name] && elsewhere[d.Name] == "" {
			t.Errorf("%s: no drift of that kind was ever found", d.Name)
		}
	}
}

// TestVPPRecheckLaws checks the laws on a real VPP.
func TestVPPRecheckLaws(t *testing.T) {
	conn := realVPP(t, 0, "punt { socket "+filepath.Join(t.TempDir(), "punt.sock")+" }")
	seen := map[string]bool{}
	for _, law := range laws() {
		if law.real && law.kind != "interface" {
			t.Run(strings.ReplaceAll(law.kind, "/", "-"), func(t *testing.T) {
				law.needPlugin(t, conn)
				recheckLaw(t, conn, &law, func() string { return "" }, seen)
			})
		}
	}
}
