package realvpp

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestVPPFlowsSampled: a VPP has more sessions of access lists than may be listed. NAT44's table shows the connections in their place, each with the rule that passed it, and all of
// them; the sessions at random places that are read as well add no more than they are; every denied packet is shown; and the source says what it leaves out.
func TestVPPFlowsSampled(t *testing.T) {
	const sent, listed, places = 1000, 100, 8
	l, web, dir := labWithWeb(t, theVPP(t), flowObjects)
	watcher := agentflows.New(agentflows.Config{
		Node: "node-1", Every: 250 * time.Millisecond, Folder: "/tmp", Name: fmt.Sprintf("lab%d", time.Now().UnixNano()), Logger: slog.New(slog.DiscardHandler),
	})
	watcher.Sessions = listed
	cfg := agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Socket: l.socket(), MaxBackoff: 100 * time.Millisecond}, Override: cni.Located(),
		Sources:  map[string]agent.Source{manifest.Name: manifest.New(manifest.Config{Paths: []string{dir}})},
		VPPAgent: vppagent.Config{Recheck: time.Second}, // VPP sends no event when an interface gets a name
	}
	cfg.Process.Flows = watcher
	runAgent(t, cfg)
	l.awaitSession(t, watcher)
	want := l.sendMany(t, manyFlows(sent, cni.PodInterface(web.ID)), cni.PodInterface(web.ID))

	var got map[string]sightings
	var answer *agentflows.Answer
	var byACL agentflows.Source
	for end := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) {
		got, answer = sightingsOf(t, watcher)
		byACL = answer.Sources[1]
		enough := byACL.Missed > 1 && byACL.Read > 0
		for why, w := range want {
			enough = enough && got[why].connections >= w.connections
		}
		if enough || time.Now().After(end) {
			break
		}
	}
	t.Logf("%+v; %+v", got, answer.Sources)
	for why, w := range want {
		if g := got[why]; g.connections < w.connections || g.connections > w.connections+places*byACL.Missed {
			t.Errorf("%s: %d connections or denied packets, want %d and at most %d for each of %d samples", why, g.connections, w.connections, places, byACL.Missed)
		}
		delete(got, why)
	}
	if len(got) > 0 {
		t.Errorf("other reasons: %+v", got)
	}
	if byACL.Name != agentflows.BySessions || byACL.Present <= listed || byACL.Read > byACL.Present || byACL.Problem == "" {
		t.Errorf("the source of sessions says %+v", byACL)
	}
}

// awaitSession sends a connection after the other until its session is shown: the agent has finished its first sync then.
func (l *lab) awaitSession(t *testing.T, watcher *agentflows.Watcher) {
	t.Helper()
	for i := range uint16(patience / time.Second) {
		p := packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr("10.2.3.1"), 1000+i), netip.MustParseAddrPort("10.1.1.2:80")).Opening()
		if err := l.frames.put(l.pairs[cni.Uplink], p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if answer, err := watcher.Ask(t.Context(), 0, &flows.Filter{Verdict: flows.Allowed, From: "10.2.3.1"}); err != nil {
			t.Fatal(err)
		} else if len(answer.Flows) > 0 {
			return
		}
	}
	t.Fatal("flows show no session")
}
