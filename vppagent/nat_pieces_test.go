package vppagent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

func manySessions() (int, bool) { return 50_000, true }

// TestMappingOfManySessionsMoves: another value gets the address of a mapping that loses its backends one by one, in one transaction.
func TestMappingOfManySessionsMoves(t *testing.T) {
	l := newLab(t, vppagent.Config{Options: vppagent.Options{NATSessions: manySessions}})
	addPod(l, "tap1", "10.1.1.2")
	first, second := dnat("default/a", "10.96.0.7", 80, "10.1.1.2:4"), dnat("default/z", "10.96.0.8", 80, "10.1.1.2:5")
	moves := dnat("default/z", "10.96.0.9", 80, "10.1.1.2:1", "10.1.1.2:2", "10.1.1.2:3").GetStMappings()[0]
	both := func(m *nat.DNat44) *nat.DNat44 {
		m = proto.CloneOf(m)
		m.StMappings = append(m.StMappings, moves)
		return m
	}
	for key, m := range portion(append(node(), first, both(second))...) {
		l.want[key] = m
	}
	l.allConfigured(l.resync())
	l.writes()
	l.allConfigured(l.put(both(first), second))
	w := l.writes()
	if len(w) != 12 || strings.Contains(w[10], "is_add") || !strings.Contains(w[11], "nat44_add_del_lb_static_mapping is_add=true") {
		t.Errorf("messages:\n%s", strings.Join(w, "\n"))
	}
	l.resync()
	l.quiet("resync")
}

// TestRefusedPieceIsRetried: VPP refuses to remove a backend of a mapping that loses its backends one by one.
func TestRefusedPieceIsRetried(t *testing.T) {
	now := time.Unix(1, 0)
	l := newLab(t, vppagent.Config{Options: vppagent.Options{NATSessions: manySessions}, Now: func() time.Time { return now }})
	addPod(l, "tap1", "10.1.1.2")
	was := dnat("default/z", "10.96.0.9", 80, "10.1.1.2:1", "10.1.1.2:2", "10.1.1.2:3")
	for key, m := range portion(append(node(), was)...) {
		l.want[key] = m
	}
	l.allConfigured(l.resync())
	n := 0
	l.sim.Fail(func(name string) (int32, bool) {
		if name == "nat44_lb_static_mapping_add_del_local" {
			if n++; n == 3 {
				return -1, false
			}
		}
		return 0, false
	})
	if c := l.del(kv.Key(was)); len(c.Statuses) != 1 || c.Statuses[0].State != event.Retrying {
		t.Errorf("after the refusal: %s", statuses(c))
	}
	l.sim.Fail(nil)
	now = now.Add(time.Hour)
	if c := l.agent.Retry(t.Context()); c == nil {
		t.Error("no retry")
	} else if len(c.Statuses) != 1 || c.Statuses[0].State != event.Removed {
		t.Errorf("after the retry: %s", statuses(c))
	}
	if dump := l.sim.Dump(); strings.Contains(dump, "10.96.0.9") {
		t.Error(dump)
	}
}

// TestPiecesOfOneMappingAreNotSentTogether: VPP may have all sessions at the backends of one mapping.
func TestPiecesOfOneMappingAreNotSentTogether(t *testing.T) {
	r := &recorder{slow: 2 * time.Millisecond}
	cfg := r.config()
	cfg.Options.NATSessions = func() (int, bool) { return 4000, true } // the estimates are small
	a := vppagent.New(cfg)
	v := services(1, 10)
	r.commit(t, a, event.Full, v)
	gone := kv.Values{}
	for key := range v {
		if strings.Contains(key, "dnat44") {
			gone[key] = nil
		}
	}
	r.now = r.now.Add(time.Minute)
	r.commit(t, a, event.NoResync, gone)
	story := strings.Join(r.story, " ")
	if n := r.count()["nat44_lb_static_mapping_add_del_local"]; n != 31 || strings.Contains(story, strings.Repeat("nat44_lb_static_mapping_add_del_local ", 4)) {
		t.Errorf("%d: %s", n, story)
	}
}

// TestOutsideInterfacesAreApart: VPP adds all mappings to an interface that becomes outside, so that the agent pauses between two such
// interfaces. The two roles of one are not parted.
func TestOutsideInterfacesAreApart(t *testing.T) {
	r := &recorder{slow: 20 * time.Millisecond}
	a := vppagent.New(r.config())
	v, roles := services(1000, 2), kv.Values{}
	for n := range 5 {
		roles.Put(&nat.Nat44Interface{Name: fmt.Sprintf("tap%d", n+1), NatInside: true, NatOutside: true})
	}
	r.commit(t, a, event.Full, v)
	r.now = r.now.Add(time.Minute)
	r.commit(t, a, event.NoResync, roles)
	story := strings.Join(r.story, " ")
	pair := "nat44_interface_add_del_feature nat44_interface_add_del_feature"
	if want := strings.TrimSuffix(strings.Repeat(pair+" pause ", 5), " pause "); story != want {
		t.Errorf("%s\nwant %s", story, want)
	}
}
