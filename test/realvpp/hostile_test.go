package realvpp

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/hostile"
)

// TestVPPHostile: a VPP outlives what a tenant writes, also when the agent starts again with all of it there; the victim's policy of the same
// moment is in force, and what it denies is denied.
func TestVPPHostile(t *testing.T) {
	for _, a := range hostile.Attacks() {
		t.Run(a.Name, func(t *testing.T) {
			l, err := openLab(theVPP(t))
			t.Cleanup(l.close)
			if err != nil {
				t.Fatal(err)
			}
			w, err := openTwin(l, "node-1", agent.Config{Limits: budget.Defaults().Within(1 << 30)})
			if w != nil {
				t.Cleanup(w.close)
			}
			if err == nil {
				err = w.apply(append(hostile.World(), hostile.Policy(80)))
			}
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := w.apply([]event.Change{hostile.Policy(90)}); err != nil {
				t.Fatal(err)
			}
			quiet := time.Since(began)
			list, err := a.Changes(1)
			if err != nil {
				t.Fatal(err)
			}
			began = time.Now()
			if err := w.apply(append(list, hostile.Policy(100))); err != nil {
				t.Fatal(err)
			}
			t.Logf("both agents: %s quiet, %s with the attack and all of it programmed", quiet.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			victimIsServed(t, w, 100)
			if err := w.restartAgents(); err != nil {
				t.Fatal(err)
			}
			victimIsServed(t, w, 100)
			if err := l.alive(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// victimIsServed sends what the victim's policy allows and what it denies.
func victimIsServed(t *testing.T, w *twin, port uint16) {
	t.Helper()
	for _, c := range []struct {
		from string
		last int
		port uint16
		want bool
	}{{"victim/client", 3, port, true}, {"victim/client", 3, port - 10, false}, {"victim/other", 4, port, false}, {"evil/pod-1", 11, port, false}} {
		landed, err := w.send("pod-"+c.from, same(packet.NewTCP(netip.AddrPortFrom(hostile.PodIP(c.last), 40000+port), netip.AddrPortFrom(hostile.PodIP(2), c.port))))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(landed) > 0 && strings.HasPrefix(landed[0].at, "pod-"); got != c.want {
			t.Errorf("%s to port %d: arrives %v, want %v", c.from, c.port, got, c.want)
		}
	}
}
