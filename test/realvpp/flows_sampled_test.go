package realvpp

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/sim/cni"
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
	l.awaitSource(t, watcher, agentflows.BySessions)
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
