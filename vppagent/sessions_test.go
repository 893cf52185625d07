package vppagent_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

func TestPlanCountsSessions(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	pods(l)
	both := dnat("default/web", "10.96.0.1", 80, "10.1.1.2:80", "10.1.1.3:80")
	c := l.put(append(node(), &nat.Nat44Interface{Name: "tap2", NatInside: true, NatOutside: true}, both)...)
	l.allConfigured(c)
	turn := 0
	l.sim.SetChoice(func(n int) int { turn++; return turn % n })
	for port := range 6 {
		p, err := packet.Parse("udp 10.1.1.2:" + string(rune('1'+port)) + "000 -> 10.96.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		p.Proto, p.TCPFlags = 6, 2 // SYN
		if fate := l.sim.Send("tap1", p); len(fate.Out) == 0 {
			t.Fatalf("%v", fate)
		}
	}
	one := dnat("default/web", "10.96.0.1", 80, "10.1.1.2:80")
	for _, tc := range []struct {
		name string
		m    proto.Message
		cut  int
	}{{"nothing changes", both, 0}, {"a backend goes", one, 3}, {"the service goes", nil, 6}} {
		p, err := l.agent.PlanSessions(context.Background(), &event.Txn{Values: map[string]proto.Message{kv.Key(both): tc.m}})
		if err != nil || p.Sessions == nil || *p.Sessions != tc.cut {
			t.Errorf("%s: %v, %v, want %d", tc.name, p, err, tc.cut)
		}
	}
}

// Timeouts that another client changes are found and written again; timeouts that equal the desired state are adopted.
func TestTimeoutsAreCompared(t *testing.T) {
	c := newClocked(t)
	pods(c.lab)
	c.allConfigured(c.put(node()...))
	c.writes()
	c.other(t, map[string]proto.Message{kv.Nat44SettingsKey: &contivnat.Nat44Settings{Sessions: 10000, Udp: 300, Icmp: 1}})
	if text := c.sim.Dump(); !strings.Contains(text, "timeouts 300/7440/240/1") {
		t.Fatal(text)
	}
	if got := lines(c.round()); len(got) != 1 || got[0] != kv.Nat44SettingsKey+" changed true" {
		t.Errorf("found %v", got)
	}
	if text := c.sim.Dump(); !strings.Contains(text, "timeouts 120/7440/240/60") {
		t.Error(text)
	}
	c.restartAgent()
	c.writes()
	c.resync()
	c.quiet("the next agent")
}
