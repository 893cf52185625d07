package vppagent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	vppacl "go.fd.io/govpp/binapi/acl"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestMappingsWaitForRefusedLists: while VPP refuses a list, no mapping leads to another endpoint. A mapping loses endpoints at once. In the end
// mappings do not wait any more.
func TestMappingsWaitForRefusedLists(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := newLab(t, vppagent.Config{Now: func() time.Time { return now }})
	refuses := false
	l.cfg.Caller = &refuser{l.conn, func(m api.Message) bool {
		_, lists := m.(*vppacl.ACLInterfaceSetACLList)
		return refuses && lists
	}}
	l.agent = vppagent.New(l.cfg)
	for i, name := range orderInterfaces {
		addPod(l, name, []string{"10.1.1.2", "10.1.1.3", "10.1.1.4"}[i])
	}
	l.allConfigured(l.put(node()[:3]...))
	l.allConfigured(l.put(accessList("a", tcp(80)), dnat("default/old", "10.96.0.2", 80, "10.1.1.2:80", "10.1.1.3:80")))
	web, old := dnat("default/web", "10.96.0.1", 80, "10.1.1.2:80"), dnat("default/old", "10.96.0.2", 80, "10.1.1.2:80")

	refuses = true
	l.put(lists("tap1", nil, []string{"a"}), web, old)
	if err := l.wantState(kv.Key(web), event.Retrying); !strings.Contains(err, "waits for "+kv.InterfaceACLsKey("tap1")) {
		t.Errorf("the new mapping: %q", err)
	}
	l.wantState(kv.Key(old), event.Configured)
	if d := l.sim.Dump(); strings.Contains(d, "10.96.0.1") || strings.Contains(d, "10.1.1.3:80") {
		t.Errorf("VPP has\n%s", d)
	}
	other := dnat("default/other", "10.96.0.3", 80, "10.1.1.2:80")
	if l.put(other); strings.Contains(l.sim.Dump(), "10.96.0.3") {
		t.Error("a mapping of a later transaction does not wait")
	}

	refuses = false
	now = now.Add(time.Minute)
	l.step()
	for _, key := range []string{kv.Key(web), kv.Key(other), kv.InterfaceACLsKey("tap1")} {
		l.wantState(key, event.Configured)
	}

	refuses = true
	last := dnat("default/last", "10.96.0.4", 80, "10.1.1.2:80")
	l.put(lists("tap2", nil, []string{"a"}), last)
	attempts := 1
	for ; !strings.Contains(l.sim.Dump(), "10.96.0.4") && attempts < 9; attempts++ {
		now = now.Add(time.Minute)
		l.step()
	}
	if attempts != 5 {
		t.Errorf("the mapping waits for %d attempts, want 5", attempts)
	}
}

// TestRestForgetsRefusedLists: a mapping in a later portion of a rest does not wait for lists that VPP refused in an earlier one and has taken since.
func TestRestForgetsRefusedLists(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := newLab(t, vppagent.Config{Now: func() time.Time { return now }, Stall: time.Nanosecond, Pause: func(context.Context, time.Duration) {}})
	refuses := false
	l.cfg.Caller = &refuser{l.conn, func(m api.Message) bool {
		_, lists := m.(*vppacl.ACLInterfaceSetACLList)
		return refuses && lists
	}}
	l.agent = vppagent.New(l.cfg)
	names := []string{"tap1", "tap2", "tap3", "tap4"}
	before, after := kv.Values{}, kv.Values{}
	for i, name := range names {
		addPod(l, name, fmt.Sprintf("10.1.1.%d", 2+i))
		before.Put(lists(name, nil, []string{"a"}))
		after.Put(lists(name, nil, []string{"b"}))
	}
	for _, m := range append(node()[:3], accessList("a", tcp(80)), accessList("b", tcp(81))) {
		before.Put(m)
	}
	l.allConfigured(l.commit(before))
	web := dnat("default/web", "10.96.0.1", 80, "10.1.1.2:80")
	after.Put(web)

	c := l.stepOnce(after, 1) // tap1
	if len(c.Left) == 0 {
		t.Fatal("the change is not divided")
	}
	refuses = true
	l.stepOnce(nil, 0)
	l.wantState(kv.InterfaceACLsKey("tap2"), event.Retrying)
	refuses = false
	now = now.Add(time.Minute)
	for l.agent.Unfinished() {
		l.stepOnce(nil, 0)
	}
	l.wantState(kv.InterfaceACLsKey("tap2"), event.Configured)
	l.wantState(kv.Key(web), event.Configured)
}
