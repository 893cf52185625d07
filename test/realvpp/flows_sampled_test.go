package realvpp

import (
	"testing"
	"time"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// TestVPPFlowsSampled: a VPP has more sessions of access lists than may be listed. NAT44's table shows the connections in their place: each once, with the rule that
// passed it, also if it is among the sessions at random places that are read as well. So is every denied packet. The source says what it leaves out.
func TestVPPFlowsSampled(t *testing.T) {
	const sent, listed = 1000, 100
	l, web, dir := labWithWeb(t, theVPP(t), flowObjects)
	watcher := newWatcher(250*time.Millisecond, nil)
	watcher.Sessions = listed
	l.runWatched(t, dir, watcher)
	l.awaitSource(t, watcher, agentflows.BySessions, web)
	want := l.sendMany(t, manyFlows(sent, cni.PodInterface(web.ID)), cni.PodInterface(web.ID), agentflows.BySessions)

	var got map[string]sightings
	var answer *agentflows.Answer
	var byACL agentflows.Source
	for end := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) {
		got, answer = sightingsOf(t, watcher, agentflows.BySessions)
		byACL = answer.Sources[1]
		enough := byACL.Missed > 1 && byACL.Read > 0
		for why, w := range want {
			enough = enough && got[why].connections >= w.connections && got[why].packets >= w.packets
		}
		if enough || time.Now().After(end) {
			break
		}
	}
	t.Logf("%+v; %+v", got, answer.Sources)
	for why, w := range want {
		if g := got[why]; g != w {
			t.Errorf("%s: %+v, want %+v, after %d samples", why, g, w, byACL.Missed)
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
