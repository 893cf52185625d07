package agent

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/samples"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/sessions"
)

// sendMany sends connections first to last, and returns the ends and the reason of each one that a pod's list passed, as flows show them.
func (w *watched) sendMany(first, last int) map[string]bool {
	w.t.Helper()
	passed := map[string]bool{}
	for n := first; n < last; n++ {
		in, p := manyPackets(n)
		for _, h := range w.send(in, p).Hops {
			if m := h.ACL; m != nil && m.Permit && !m.Session && (m.Interface == webDoor || m.Interface == clientDoor) {
				passed[lineOf(p, m.Output)+w.reason(m)] = true
			}
		}
	}
	return passed
}

func lineOf(p packet.Packet, output bool) string {
	direction := " egress "
	if output {
		direction = " ingress "
	}
	return p.Proto.String() + " " + p.Src.String() + " " + p.Dst.String() + direction
}

// shown returns what flows of sessions show, without the clients' ports, and how many connections.
func (w *watched) shown() (lines map[string]bool, connections uint64, a *agentflows.Answer) {
	w.t.Helper()
	a, err := w.watcher.Ask(w.t.Context(), 0, &flows.Filter{Verdict: flows.Allowed})
	if err != nil {
		w.t.Fatal(err)
	}
	lines = map[string]bool{}
	for i := range a.Flows {
		if f := &a.Flows[i]; f.SeenBy == agentflows.BySessions {
			lines[f.Protocol+" "+f.Source.Address.String()+" "+f.Destination.Address.String()+" "+f.Direction+" "+f.Decision.Text] = true
			connections += f.Connections
		}
	}
	return lines, connections, a
}

// With more sessions than may be listed, NAT44's table shows the connections that came by the uplink in their place: each once, with the rule that passed it.
// A denied packet is no connection. When there are fewer again, all others are shown, and no connection is counted twice.
func TestFlowsAboveTheBoundOfSessions(t *testing.T) {
	w := watchFlows(t, "above")
	w.watcher.Sessions = 20
	const sent, fromUplink, all = 400, 50, 200 // and connections as pods' lists see them
	want := w.sendMany(0, sent)
	w.look()
	w.look()
	lines, connections, a := w.shown()
	reads := uint64(2)
	for ; a.Sources[1].Read == 0 && reads < 20; reads++ { // all places of a sample may be free
		w.look()
		lines, connections, a = w.shown()
	}
	uplink := 0
	for line := range want {
		if strings.Contains(line, " 10.2.0.") {
			uplink++
			if !lines[line] {
				t.Errorf("%q is not shown", line)
			}
		}
	}
	for line := range lines {
		if !want[line] {
			t.Errorf("%q is shown, and no such connection passed", line)
		}
	}
	// Each read had 8 sessions at most, which may be of other connections.
	if sampled := 8 * reads; uplink < 2 || connections < fromUplink || connections > fromUplink+sampled {
		t.Errorf("%d connections, %d came by the uplink: %q", connections, fromUplink, slices.Sorted(maps.Keys(want)))
	}
	byACL, byNAT := a.Sources[1], a.Sources[2]
	if byACL.Present <= 20 || byACL.Read == 0 || byACL.Read > 8 || byACL.Missed != reads || !strings.Contains(byACL.Problem, "too many sessions") {
		t.Errorf("%+v", byACL)
	}
	if byNAT.Present == 0 || byNAT.Read != byNAT.Present || byNAT.Problem != "" {
		t.Errorf("%+v", byNAT)
	}
	for source, share := range map[string]float64{agentflows.BySessions: byACL.Share(), agentflows.ByNAT: 1} {
		if got := samples.Read(t, w.agent.registry)[`contiv_flows_read_ratio{source="`+source+`"}`]; got != share || share <= 0 {
			t.Errorf("%s: a share of %v, want %v", source, got, share)
		}
	}
	status, err := w.agent.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := status.VPP.Flows, []agentflows.Source{byACL}; !slices.Equal(got, want) {
		t.Errorf("the status shows %+v, want %+v", got, want)
	}
	w.watcher.Sessions = 10_000
	w.look()
	w.look()
	lines, connections, a = w.shown()
	if status, err = w.agent.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(lines, want) || connections != all || a.Sources[1].Problem != "" || a.Sources[1].Share() != 1 || len(status.VPP.Flows) > 0 {
		t.Errorf("with all sessions %d connections, want %d: %v\n%+v", connections, all, lines, a.Sources)
	}
}

// Sessions that no other table has are shown by samples: all in the course of time, each once, with the rule that passed it.
func TestFlowsSampleSessions(t *testing.T) {
	w := watchFlows(t, "sampled")
	w.watcher.Sessions, w.watcher.Translated = 100, sessions.Bounds{All: 1, One: 1}
	w.sendMany(0, 300)
	w.vpp.Advance(time.Hour) // the first places are free
	w.look()
	_, former, _ := w.shown()
	want := w.sendMany(300, 600)
	reads := 0
	for len(want) > 0 && reads < 300 {
		reads++
		w.look()
		for line := range first(w.shown()) {
			delete(want, line)
		}
	}
	_, connections, a := w.shown()
	if len(want) > 0 || connections > 300+former || reads < 3 {
		t.Errorf("after %d reads %d connections, without %q; %+v", reads, connections, slices.Sorted(maps.Keys(want)), a.Sources)
	}
	if s := a.Sources[2]; s.Present == 0 || s.Read != 0 || !strings.Contains(s.Problem, "too many NAT44 sessions") {
		t.Errorf("%+v", s)
	}
}

func first(lines map[string]bool, _ uint64, _ *agentflows.Answer) map[string]bool { return lines }
