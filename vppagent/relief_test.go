package vppagent_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// rest counts pauses and does not wait.
type rest struct{ pauses int }

func (r *rest) pause(context.Context, time.Duration) error { r.pauses++; return nil }

// natLab has two pods with a Service, which reach themselves by twice-nat.
func natLab(t *testing.T) *lab {
	l := newLab(t, vppagent.Config{})
	pods(l)
	l.allConfigured(l.put(append(node(), &nat.Nat44Interface{Name: "tap2", NatInside: true, NatOutside: true},
		dnat("default/web", "10.96.0.1", 80, "10.1.1.2:80", "10.1.1.3:80"))...))
	return l
}

// dial opens connections to the Service from consecutive ports.
func (l *lab) dial(in, client string, port, n int) {
	l.t.Helper()
	for i := range n {
		syn := packet.NewTCP(netip.MustParseAddrPort(fmt.Sprintf("%s:%d", client, port+i)), netip.MustParseAddrPort("10.96.0.1:80"))
		if fate := l.sim.Send(in, syn); len(fate.Out) != 1 {
			l.t.Fatalf("%s:%d: %v", client, port+i, fate)
		}
	}
}

func requests(v *sim.VPP, name string) (n int) {
	for _, r := range v.Log() {
		if r.Name == name {
			n++
		}
	}
	return n
}

// Expired sessions are freed, at most the wanted number, in slices with pauses; live sessions of every holder stay.
func TestRelieveFreesExpiredSessions(t *testing.T) {
	l := natLab(t)
	l.sim.SetChoice(func(int) int { return 0 })
	l.dial("tap2", "10.1.1.3", 1000, 1000)
	l.dial("tap1", "10.1.1.2", 5000, 10) // to itself: twice-nat
	l.sim.Advance(241 * time.Second)
	l.sim.SetChoice(func(int) int { return 1 })
	l.dial("tap1", "10.1.1.2", 7000, 30) // frees 30 of the others, one each
	var r rest
	got, err := l.agent.RelieveSessions(t.Context(), vppagent.Relief{Want: 600, Pause: r.pause})
	if err != nil || got.Sessions != 1010 || got.Expired != 600 || got.Evicted != 0 || len(l.sim.Sessions()) != 410 {
		t.Fatalf("%+v, %v; %d left", got, err, len(l.sim.Sessions()))
	}
	if r.pauses != 2+3 || requests(l.sim, "nat44_user_session_v3_dump") != 1 { // the users, one user, 600 in slices of 256
		t.Errorf("%d pauses, %d lists of sessions", r.pauses, requests(l.sim, "nat44_user_session_v3_dump"))
	}
	if got, err = l.agent.RelieveSessions(t.Context(), vppagent.Relief{Want: 600, Pause: r.pause}); err != nil || got.Expired != 380 {
		t.Errorf("%+v, %v", got, err)
	}
	left := l.sim.Sessions()
	for _, s := range left {
		if s.TimedOut || s.Out2In.MatchSrc.Port() < 7000 {
			t.Errorf("left: %s", s)
		}
	}
	if len(left) != 30 || got.Holders[0].Sessions != 370 && got.Holders[0].Sessions != 40 {
		t.Errorf("%d sessions left; holders were %v", len(left), got.Holders)
	}
}

// The longest idle sessions of evictable holders above their share are freed; a later session of the same port stays.
func TestRelieveEvictsTheLongestIdle(t *testing.T) {
	l := natLab(t)
	l.allConfigured(l.put(dnat("default/api", "10.96.0.2", 80, "10.1.1.2:80", "10.1.1.3:80")))
	l.sim.SetChoice(func(int) int { return 0 })
	l.dial("tap2", "10.1.1.3", 1000, 100)
	l.dial("tap1", "10.1.1.2", 1000, 120)
	l.sim.Advance(10 * time.Second)
	syn := packet.NewTCP(netip.MustParseAddrPort("10.1.1.3:1000"), netip.MustParseAddrPort("10.96.0.2:80")) // the same return flow as the first
	if fate := l.sim.Send("tap2", syn); len(fate.Out) != 1 {
		t.Fatal(fate)
	}
	three := netip.MustParseAddr("10.1.1.3")
	var r rest
	got, err := l.agent.RelieveSessions(t.Context(), vppagent.Relief{
		Want: 500, Share: 1, Pause: r.pause, Evictable: func(a netip.Addr) bool { return a == three },
	})
	if err != nil || got.Expired != 0 || got.Evicted != 100 {
		t.Fatalf("%+v, %v", got, err)
	}
	of := map[string]int{}
	for _, s := range l.sim.Sessions() {
		of[s.Out2In.MatchSrc.Addr().String()+" to "+s.Out2In.MatchDst.Addr().String()]++
	}
	if want := "map[10.1.1.2 to 10.96.0.1:120 10.1.1.3 to 10.96.0.2:1]"; fmt.Sprint(of) != want {
		t.Errorf("left %v, want %s", of, want)
	}
}

// Without a wanted number nothing is freed, and holders that are not evictable keep their sessions.
func TestRelieveOnlyCounts(t *testing.T) {
	l := natLab(t)
	l.dial("tap2", "10.1.1.3", 1000, 100)
	l.sim.Advance(time.Hour)
	l.dial("tap1", "10.1.1.2", 1000, 10)
	writes := l.sim.Writes()
	var r rest
	got, err := l.agent.RelieveSessions(t.Context(), vppagent.Relief{Pause: r.pause, Evictable: func(netip.Addr) bool { return true }})
	if text := fmt.Sprint(got.Holders); err != nil || text != "[{10.1.1.3 90} {10.1.1.2 10}]" || l.sim.Writes() != writes {
		t.Errorf("%s, %v, %d writes", text, err, l.sim.Writes()-writes)
	}
	if got, err = l.agent.RelieveSessions(t.Context(), vppagent.Relief{Want: 200, Pause: r.pause}); err != nil || got.Expired != 90 || got.Evicted != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A pause that fails ends the relief; so does a refusal of VPP. The result counts the sessions freed until then.
func TestRelieveEnds(t *testing.T) {
	l := natLab(t)
	l.dial("tap2", "10.1.1.3", 1000, 300)
	l.sim.Advance(time.Hour)
	stop := errors.New("stop")
	left := 4 // after the users, two lists of sessions at most, and the first slice
	got, err := l.agent.RelieveSessions(t.Context(), vppagent.Relief{Want: 300, Pause: func(context.Context, time.Duration) error {
		if left--; left == 0 || len(l.sim.Sessions()) < 300 {
			return stop
		}
		return nil
	}})
	if !errors.Is(err, stop) || got.Expired == 0 || got.Expired+len(l.sim.Sessions()) != 300 {
		t.Errorf("%+v, %v, %d left", got, err, len(l.sim.Sessions()))
	}
	l.sim.Fail(func(name string) (int32, bool) {
		if name == "nat44_del_session" {
			return -1, false
		}
		return 0, false
	})
	var r rest
	if _, err = l.agent.RelieveSessions(t.Context(), vppagent.Relief{Want: 300, Pause: r.pause}); err == nil || !strings.Contains(err.Error(), "free NAT44 sessions") {
		t.Errorf("%v", err)
	}
}
