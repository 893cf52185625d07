package agent

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent/control"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
)

const flowPolicies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{ipBlock: {cidr: 10.2.0.0/16, except: [10.2.9.0/24]}}], ports: [{port: 80}, {port: 8080}]}, {from: [{ipBlock: {cidr: 10.1.1.0/24}}]}]
  egress: [{to: [{ipBlock: {cidr: 10.3.0.0/16}}]}, {to: [{podSelector: {}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: guard}
spec:
  priority: 5
  subject: {namespaces: {}}
  egress: [{action: Deny, to: [{networks: [10.3.7.0/24]}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: client-7d9f8b6c5-x2x4z, namespace: default, labels: {app: client, pod-template-hash: 7d9f8b6c5}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}], phase: Running}
`

// watched is an agent that watches flows when the test asks for it.
type watched struct {
	*world
	watcher *agentflows.Watcher
	// now is later by pause at each look, and by took at each call of the watcher's clock: at first the watcher makes no pause.
	now         time.Time
	pause, took time.Duration
}

func watchFlows(t *testing.T, name string, more ...string) *watched {
	t.Helper()
	return watchObjects(t, name, append(more, flowPolicies, endpoints)...)
}

// watchObjects is watchFlows with these objects beside a node, the pod web and its Service.
func watchObjects(t *testing.T, name string, more ...string) *watched {
	t.Helper()
	w := &watched{now: time.Now(), pause: time.Hour}
	name = fmt.Sprintf("test%s%d", name, time.Now().UnixNano())
	w.watcher = agentflows.New(agentflows.Config{
		Node: "node-1", Every: time.Hour, Folder: "/tmp", Name: name, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { w.now = w.now.Add(w.took); return w.now },
	})
	w.world = start(t, func(c *Config) {
		c.Process.Flows, c.Process.Capture = w.watcher, capture.NewInterface("/tmp", name, w.watcher.Drops())
	}, more...)
	w.wait("first sync", firstSync)
	w.settled()
	t.Cleanup(func() { w.look() }) // VPP's file is read and removed
	w.look()
	return w
}

func (w *watched) look() {
	a := w.agent
	w.now = w.now.Add(w.pause)
	w.watcher.Look(context.Background(), agentflows.Loop{Do: a.conn.Do, InLoop: a.inLoop, Objects: a.reader.Proof.Objects, Policies: a.policies, Sent: a.values.Sent})
}

func (w *watched) send(in string, p packet.Packet) sim.Fate { return w.vpp.Send(in, p) }

// lines returns the flows without their times.
func (w *watched) lines(filter *flows.Filter) []string {
	w.t.Helper()
	if filter == nil {
		filter = &flows.Filter{}
	}
	answer, err := control.FetchFlows(w.t.Context(), w.agent.cfg.Listen.Status, 0, filter)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range answer.Sources {
		if s.Problem != "" {
			w.t.Errorf("%s: %s", s.Name, s.Problem)
		}
	}
	out := []string{}
	for i := range answer.Flows {
		out = append(out, answer.Flows[i].SeenBy+": "+answer.Flows[i].String())
	}
	return out
}

const (
	webDoor    = "pod-default/web"
	clientDoor = "pod-default/client-7d9f8b6c5-x2x4z"
)

func tcp(from, to string) packet.Packet {
	return packet.NewTCP(netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)).Opening()
}

// An agent shows connections and dropped packets with the names of their ends, and the rule that decided.
func TestFlowsHaveNamesAndReasons(t *testing.T) {
	w := watchFlows(t, "names")
	for _, s := range []struct{ in, from, to string }{
		{"uplink", "10.2.0.7:1000", "10.1.1.2:80"},
		{"uplink", "10.2.0.7:1001", "10.1.1.2:80"},
		{"uplink", "10.2.9.7:1002", "10.1.1.2:80"},
		{webDoor, "10.1.1.2:1003", "10.3.7.1:53"},
		{webDoor, "10.1.1.2:1004", "10.4.0.1:53"},
		{webDoor, "10.1.1.2:1004", "10.4.0.1:53"},
		{clientDoor, "10.1.1.3:1005", "10.96.0.10:80"},
		{webDoor, "10.1.1.3:1006", "10.3.0.1:53"}, // the address of another pod, which may dial that
	} {
		w.send(s.in, tcp(s.from, s.to))
	}
	w.look()
	w.look() // sees nothing again
	const client, seen = "default/client-7d9f8b6c5-x2x4z", "sessions: allowed TCP "
	want := []string{
		"capture: dropped TCP 10.2.9.7:1002 -> default/web:80 ingress, denied: NetworkPolicy default/web isolates default/web for ingress and no rule allows it; 1 packets, 40 bytes",
		"capture: dropped TCP default/web:1003 -> 10.3.7.1:53 egress, denied by AdminNetworkPolicy guard egress rule 1; 1 packets, 40 bytes",
		"capture: dropped TCP default/web:1004 -> 10.4.0.1:53 egress, denied: NetworkPolicy default/web isolates default/web for egress and no rule allows it; 2 packets, 80 bytes",
		"capture: dropped TCP " + client + ":1006 -> 10.3.0.1:53, acl-plugin-in-ip4-fa: ACL deny packets; 1 packets, 40 bytes",
	}
	if diff := cmp.Diff(want, w.lines(&flows.Filter{Verdict: flows.Dropped})); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
	got := strings.Join(w.lines(&flows.Filter{Verdict: flows.Allowed}), "\n")
	for _, line := range []string{
		seen + "10.2.0.7:1001 -> default/web:80 ingress, allowed by NetworkPolicy default/web ingress rule 1; 2 connections, 2 packets", // counted by NAT44
		seen + client + ":1005 -> service default/web:80 egress, ",
		seen + client + ":1005 -> default/web:8080 ingress, allowed by NetworkPolicy default/web ingress rule 2; 1 connections",
		"nat44: allowed TCP " + client + ":1005 -> default/web:8080 (dialled 10.96.0.10:80, source 10.1.1.3:1005)",
	} {
		if strings.Count(got, line) != 1 {
			t.Errorf("%q is not once in:\n%s", line, got)
		}
	}
	if !strings.HasSuffix(got, "; 1 connections, 1 packets, 40 bytes") {
		t.Errorf("the latest flow is not the translated one, counted once:\n%s", got)
	}
	answer, err := w.watcher.Ask(t.Context(), 0, &flows.Filter{From: "default/client", To: "default/web"})
	if err != nil {
		t.Fatal(err)
	}
	if last := answer.Flows[len(answer.Flows)-1].Translation; last == nil || last.Service != "default/web" {
		t.Errorf("the Service that was dialled: %+v", last)
	}
	if lines := w.lines(&flows.Filter{From: "default/client", To: "default/web"}); len(lines) != 3 {
		t.Errorf("from the client's workload: %q", lines)
	}
}

// For random packets a flow names the rule that the simulated VPP applied, and every drop of a list is seen.
func TestFlowsNameTheRuleThatVPPApplied(t *testing.T) {
	w := watchFlows(t, "rules")
	rnd := rand.New(rand.NewPCG(7, 7))
	addr := []string{"10.1.1.2", "10.1.1.3", "10.2.0.7", "10.2.9.7", "10.3.0.1", "10.3.7.1", "10.4.0.1"}
	ports := []uint16{53, 80, 8080, 31000, 40000, 50000}
	want, dropped := map[string]uint64{}, 0
	for n := range 3000 {
		from, to := addr[rnd.IntN(len(addr))], addr[rnd.IntN(len(addr))]
		in := map[string]string{"10.1.1.2": webDoor, "10.1.1.3": clientDoor}[from]
		if in == "" {
			in = "uplink"
		}
		src := netip.AddrPortFrom(netip.MustParseAddr(from), ports[rnd.IntN(len(ports))])
		dst := netip.AddrPortFrom(netip.MustParseAddr(to), ports[rnd.IntN(len(ports))])
		p := packet.NewUDP(src, dst)
		if rnd.IntN(2) == 0 {
			p = packet.NewTCP(src, dst)
			p.TCPFlags = uint8(rnd.IntN(64))
		}
		fate := w.send(in, p)
		if m := denialOf(fate); m != nil {
			dropped++
			want[w.reason(m)]++
		}
		if n%500 == 0 {
			w.look()
		}
	}
	w.look()
	got := map[string]uint64{}
	answer, err := w.watcher.Ask(t.Context(), 0, &flows.Filter{Verdict: flows.Dropped})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range answer.Flows {
		if strings.HasPrefix(f.Decision.Text, "denied") || strings.HasPrefix(f.Decision.Text, "acl-plugin") {
			got[f.Decision.Text] += f.Packets
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || dropped < 1000 || len(want) < 4 {
		t.Errorf("%d of lists dropped (-want +got):\n%s", dropped, diff)
	}
}

// denialOf returns the access list's rule that dropped a packet; nil: none did.
func denialOf(f sim.Fate) *sim.ACLMatch {
	if len(f.Out) > 0 || len(f.Hops) == 0 {
		return nil
	}
	for _, h := range f.Hops {
		if h.ACL != nil && !h.ACL.Permit {
			return h.ACL
		}
	}
	return nil
}

func (w *watched) reason(m *sim.ACLMatch) (text string) {
	w.t.Helper()
	if err := w.agent.inLoop(w.t.Context(), func() {
		r, ok := w.agent.policies.Explain(m.Interface, m.Output, m.Place, m.Rule)
		if text = r.Text; !ok {
			text = "unknown"
		}
	}); err != nil {
		w.t.Fatal(err)
	}
	return text
}

// A VPP that drops more than a capture holds, one whose capture is another program's, and an agent that does not watch say so.
func TestFlowsThatAreIncomplete(t *testing.T) {
	w := watchFlows(t, "full")
	for i := range 20_100 {
		w.send(webDoor, packet.NewUDP(netip.AddrPortFrom(netip.MustParseAddr("10.1.1.2"), uint16(1024+i)), netip.MustParseAddrPort("10.4.0.1:53")))
	}
	w.look()
	answer, err := w.watcher.Ask(t.Context(), 0, nil)
	if err != nil || len(answer.Flows) != 1 || answer.Flows[0].Packets != 20_000 || !strings.Contains(answer.Sources[0].Problem, "drops more packets") || answer.Sources[0].Missed != 1 {
		t.Errorf("%+v, %v", answer, err)
	}
	w.look()
	if answer, err = w.watcher.Ask(t.Context(), answer.Next, nil); err != nil || len(answer.Flows) != 0 || answer.Sources[0].Problem != "" {
		t.Errorf("afterwards %+v, %v", answer, err)
	}
	other := start(t, nil)
	other.wait("first sync", firstSync)
	if _, err := control.FetchFlows(t.Context(), other.agent.cfg.Listen.Status, 0, &flows.Filter{}); err == nil || !strings.Contains(err.Error(), "--flows") {
		t.Errorf("an agent that does not watch: %v", err)
	}
}

// The reason follows a change of the policy.
func TestFlowsFollowPolicies(t *testing.T) {
	w := watchFlows(t, "change")
	denied := func() {
		w.send(webDoor, tcp("10.1.1.2:1004", "10.3.7.1:53"))
		w.look()
	}
	denied()
	w.write("more.yaml", strings.NewReplacer("name: guard", "name: first", "priority: 5", "priority: 1").Replace(guardOf(flowPolicies)))
	w.wait("policy", func(c *event.Committed) bool { return strings.Contains(c.Cause, "first") })
	w.settled()
	denied()
	lines := w.lines(&flows.Filter{Verdict: flows.Dropped})
	if len(lines) != 2 || !strings.Contains(lines[0], "AdminNetworkPolicy guard") || !strings.Contains(lines[1], "AdminNetworkPolicy first") {
		t.Errorf("%q", lines)
	}
}

// guardOf returns the AdminNetworkPolicy.
func guardOf(text string) string { return strings.Split(text, "\n---\n")[1] }

// After a read that stopped VPP for a time, the watcher pauses for 200 times as long. Dropped packets are read in each period.
func TestFlowsPause(t *testing.T) {
	w := watchFlows(t, "pause")
	w.took, w.pause = time.Second, 10*time.Second
	w.look()
	w.send("uplink", tcp("10.2.0.7:1000", "10.1.1.2:80"))
	w.send("uplink", tcp("10.2.9.7:1000", "10.1.1.2:80"))
	w.look()
	if lines := w.lines(nil); len(lines) != 1 || !strings.Contains(lines[0], "dropped") {
		t.Errorf("within the pause: %q", lines)
	}
	w.pause = 201 * time.Second
	w.look()
	if lines := w.lines(&flows.Filter{Verdict: flows.Allowed}); len(lines) != 1 {
		t.Errorf("after the pause: %q", lines)
	}
}

// A flow that no rule decides names the policy for which the tier ends, or the profile.
func TestFlowsNameTriggersAndProfiles(t *testing.T) {
	w := watchFlows(t, "triggers", `
apiVersion: v1
kind: Pod
metadata: {name: free, namespace: other}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.9, podIPs: [{ip: 10.1.1.9}], phase: Running}
`)
	w.send(webDoor, tcp("10.1.1.2:1004", "10.4.0.1:53"))
	w.send("uplink", tcp("10.4.0.1:1005", "10.1.1.9:80"))
	w.look()
	answer, err := w.watcher.Ask(t.Context(), 0, nil)
	if err != nil || len(answer.Flows) != 2 {
		t.Fatalf("%+v, %v", answer, err)
	}
	want := []flows.Decision{
		{Text: "denied: NetworkPolicy default/web isolates default/web for egress and no rule allows it", Tier: "default", Trigger: "NetworkPolicy default/web"},
		{Text: "allowed: no policy selects other/free for ingress", Profile: "kns.other"},
	}
	if diff := cmp.Diff(want, []flows.Decision{answer.Flows[0].Decision, answer.Flows[1].Decision}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
