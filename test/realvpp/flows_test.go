package realvpp

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

const flowObjects = countedObjects + `
---
apiVersion: v1
kind: Service
metadata: {name: out, namespace: default}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{port: 80, targetPort: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: out, namespace: default, labels: {kubernetes.io/service-name: out}}
addressType: IPv4
ports: [{port: 80, protocol: TCP}]
endpoints: [{addresses: [10.3.0.1], conditions: {ready: true}}]
`

// TestVPPFlows: an agent shows connections and dropped packets of a VPP with names, counts, NAT and the rule that decided, also after VPP restarted.
func TestVPPFlows(t *testing.T) {
	l, web, dir := labWithWeb(t, theVPP(t), flowObjects)
	watcher := newWatcher(100*time.Millisecond, nil)
	l.runWatched(t, dir, watcher)
	sent := uint64(0)
	for life := range uint16(2) {
		if life > 0 {
			if err := l.restart(); err != nil {
				t.Fatal(err)
			}
		}
		sent = seenLife(t, l, watcher, web.ID, 1000+100*life, sent)
	}
}

// newWatcher makes a watcher of flows, whose files have a name of the moment. Probe may be nil.
func newWatcher(every time.Duration, probe *agentflows.Probe) *agentflows.Watcher {
	return agentflows.New(agentflows.Config{
		Node: "node-1", Every: every, Folder: "/tmp", Name: fmt.Sprintf("lab%d", time.Now().UnixNano()), Logger: slog.New(slog.DiscardHandler), Probe: probe,
	})
}

// runWatched starts an agent with the manifests of a folder and with that watcher.
func (l *lab) runWatched(t *testing.T, dir string, watcher *agentflows.Watcher) {
	t.Helper()
	cfg := agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Socket: l.socket(), MaxBackoff: 100 * time.Millisecond}, Override: cni.Located(),
		Sources:  map[string]agent.Source{manifest.Name: manifest.New(manifest.Config{Paths: []string{dir}})},
		VPPAgent: vppagent.Config{Recheck: time.Second}, // VPP sends no event when an interface gets a name
	}
	cfg.Process.Flows = watcher
	runAgent(t, cfg)
}

// seenLife sends packets from unused ports until flows show them: before the first sync VPP drops all. It returns how many clients' packets it has sent, and others before.
func seenLife(t *testing.T, l *lab, watcher *agentflows.Watcher, web model.PodID, port uint16, sent uint64) uint64 {
	t.Helper()
	door := cni.PodInterface(web)
	want := []string{
		"capture: dropped TCP 10.2.9.7:%d -> default/web:80 ingress, denied: NetworkPolicy default/web isolates default/web for ingress and no rule allows it",
		"capture: dropped TCP default/web:%d -> 10.3.7.1:53 egress, denied by AdminNetworkPolicy guard egress rule 2",
		"sessions: allowed TCP 10.2.0.7:%d -> default/web:80 ingress, allowed by NetworkPolicy default/web ingress rule 1",
		"sessions: allowed TCP default/web:%d -> 10.3.0.1:53 egress, allowed by NetworkPolicy default/web egress rule 1",
		"nat44: allowed TCP default/web:%d -> 10.3.0.1:80 (dialled 10.96.0.10:80, source 10.1.1.2:%[1]d) egress, allowed by NetworkPolicy default/web egress rule 1; ",
		"sessions: allowed TCP default/web:%d -> service default/out:80 egress, allowed by NetworkPolicy default/web egress rule 1; ",
		"nat44: allowed TCP default/web:%d -> 10.3.0.1:53 (dialled 10.3.0.1:53, source 192.168.16.1:",
	}
	var got []string
	after := uint64(0)
	for end := time.Now().Add(patience); ; {
		for _, k := range []struct{ in, from, to string }{
			{"uplink", "10.2.0.7", "10.1.1.2:80"},
			{"uplink", "10.2.9.7", "10.1.1.2:80"},
			{door, "10.1.1.2", "10.3.0.1:53"},
			{door, "10.1.1.2", "10.3.7.1:53"},
			{door, "10.1.1.2", "10.96.0.10:80"},
		} {
			p := packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr(k.from), port), netip.MustParseAddrPort(k.to)).Opening()
			if _, err := l.send(k.in, p); err != nil {
				t.Fatal(err)
			}
		}
		sent++
		time.Sleep(300 * time.Millisecond)
		answer, err := watcher.Ask(t.Context(), after, nil)
		if err != nil {
			t.Fatal(err)
		}
		after = answer.Next
		for i := range answer.Flows {
			got = append(got, answer.Flows[i].SeenBy+": "+answer.Flows[i].String())
		}
		missing := missingFlows(want, got, port)
		if missing == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("flows lack %s, with %+v; they have\n%s", missing, answer.Sources, strings.Join(got, "\n"))
		}
		port++
	}
	checkCounts(t, watcher, sent)
	return sent
}

// missingFlows returns a line that no flow begins with, whatever its port is.
func missingFlows(want, got []string, last uint16) string {
	for _, line := range want {
		found := false
		for port := last / 100 * 100; port <= last && !found; port++ {
			for _, g := range got {
				found = found || strings.HasPrefix(g, fmt.Sprintf(line, port))
			}
		}
		if !found {
			return line
		}
	}
	return ""
}

// checkCounts checks that a dropped packet of TCP without data has 40 bytes, and that NAT44 counts the packets of clients of other nodes that it lets pass, each once. A packet may count
// without its connection: NAT44 counts packets before lists drop them, and a read of sessions may be incomplete.
func checkCounts(t *testing.T, watcher *agentflows.Watcher, sent uint64) {
	t.Helper()
	answer, err := watcher.Ask(t.Context(), 0, &flows.Filter{Verdict: flows.Dropped, From: "default/web", To: "10.3.7.1"})
	if err != nil || len(answer.Flows) == 0 {
		t.Fatalf("%+v, %v", answer, err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { // NAT44's table is read later than sessions
		passed, err := watcher.Ask(t.Context(), 0, &flows.Filter{Verdict: flows.Allowed, From: "10.2.0.7", To: "default/web"})
		if err == nil && len(passed.Flows) == 1 && passed.Flows[0].Packets > 0 && passed.Flows[0].Packets <= sent && passed.Flows[0].Connections <= sent {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, %v", passed, err)
		}
	}
	for _, f := range answer.Flows {
		if f.Packets == 0 || f.Bytes != 40*f.Packets {
			t.Errorf("%d packets with %d bytes: %s", f.Packets, f.Bytes, &f)
		}
	}
}
