package realvpp

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// TestVPPRevocation checks on real VPPs, beside simulated ones, what trace's TestRevokedFlowsEnd and TestAllowedFlowsGoOn check in the
// simulated ones alone: established flows end when their rule is revoked, whichever side speaks first, and continue otherwise.
func TestVPPRevocation(t *testing.T) {
	path := theVPP(t)
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		r := &revocation{t: t, renderer: renderer, cluster: newCluster(path, agent.Config{Services: config.ServedBy(renderer)})}
		t.Cleanup(r.close)
		r.change(r.file("../../trace/testdata/talkers.yaml")...)
		for _, closed := range []bool{false, true} {
			for _, revoked := range []string{"in", "out"} {
				for _, serverFirst := range []bool{false, true} {
					r.name = fmt.Sprintf("%s, %s revoked, others closed %v, server first %v", renderer, revoked, closed, serverFirst)
					r.ends(revoked, closed, serverFirst)
				}
			}
		}
		r.goesOn()
		t.Logf("%s: %d flows: %d requests and %d pushes after their rule was revoked, %d and %d got through; %d after other changes, %d lost", renderer, r.flows, r.asked, r.pushed, r.reached, r.heard, r.went, r.lost)
	}
}

// sctpPolicy is a policy of Calico's for one direction of pods: a port of SCTP is allowed, and before that the peers of an app are denied
// ("": nobody).
func sctpPolicy(name, app, direction, denied string) string {
	rules, side := strings.ToLower(direction), map[string]string{"Ingress": "source", "Egress": "destination"}[direction]
	if denied != "" {
		denied = fmt.Sprintf("{action: Deny, %s: {selector: app == '%s'}}, ", side, denied)
	}
	return fmt.Sprintf("---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: default.%s}\nspec: {selector: app == '%s', types: [%s], %s: [%s{action: Allow, protocol: SCTP, destination: {ports: [3868]}}]}\n",
		name, app, direction, rules, denied)
}

// TestVPPRevokedAssociations holds on real VPPs what trace's TestRevokedAssociationsEnd holds in simulated ones: an association ends when a
// policy denies the addresses of its ends at all ports, although a later rule permits a port to everybody.
func TestVPPRevokedAssociations(t *testing.T) {
	path := theVPP(t)
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		r := &revocation{t: t, renderer: renderer, cluster: newCluster(path, agent.Config{Services: config.ServedBy(renderer)})}
		t.Cleanup(r.close)
		r.change(r.file("../../trace/testdata/talkers.yaml")...)
		closed := sctpPolicy("no-out", "server", "Egress", "client") + sctpPolicy("no-in", "client", "Ingress", "server")
		for _, revoked := range []string{"in", "out"} {
			for _, serverFirst := range []bool{false, true} {
				r.name = fmt.Sprintf("%s, %s revoked, server first %v", renderer, revoked, serverFirst)
				r.write(closed + sctpPolicy("in", "server", "Ingress", "") + sctpPolicy("out", "client", "Egress", ""))
				var talks []*revocable
				for i, server := range []string{"fd00:1:1::3", "fd00:1:2::3", "10.1.1.3", "10.1.2.3"} {
					if renderer == agent.RendererCNAT || i < 2 { // nat44 hides clients of SCTP behind the node
						talks = append(talks, r.dial(server, 3868, model.SCTP, false, i%2 == 1))
					}
				}
				r.flows += len(talks)
				r.write(map[string]string{"in": sctpPolicy("in", "server", "Ingress", "client"), "out": sctpPolicy("out", "client", "Egress", "server")}[revoked])
				r.end(talks, revoked, true, serverFirst)
			}
		}
		t.Logf("%s: %d associations: %d and %d packets after they were revoked, %d and %d got through", renderer, r.flows, r.asked, r.pushed, r.reached, r.heard)
	}
}

// revocation is a cluster with a client and two servers.
type revocation struct {
	*cluster
	t        *testing.T
	renderer agent.ServiceRenderer
	name     string

	flows, asked, reached, pushed, heard, went, lost int
}

// revocable is an established flow.
type revocable struct {
	r            *revocation
	to           string
	vip, far     bool
	from, server place
	request      packet.Packet
	answer       flight
}

func (r *revocation) file(path string) []event.Change {
	r.t.Helper()
	changes, err := manifest.Load(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return changes
}

func (r *revocation) change(changes ...event.Change) {
	r.t.Helper()
	if err := r.apply(changes); err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
}

// policies applies NetworkPolicies, one a line: name, pods, direction, the others it lets in or out ("-": nobody).
func (r *revocation) policies(lines ...string) {
	r.t.Helper()
	var b strings.Builder
	for _, line := range lines {
		w := strings.Fields(line)
		fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: prod}\nspec:\n  podSelector: {matchLabels: {app: %s}}\n  policyTypes: [%s]\n", w[0], w[1], w[2])
		if w[3] == "-" {
			continue
		}
		peer := map[string]string{"Ingress": "from", "Egress": "to"}[w[2]]
		fmt.Fprintf(&b, "  %s:\n", strings.ToLower(w[2]))
		for who := range strings.SplitSeq(w[3], ",") {
			fmt.Fprintf(&b, "  - %s: [{podSelector: {matchLabels: {app: %s}}}]\n", peer, who)
		}
	}
	r.write(b.String())
}

// write applies manifests.
func (r *revocation) write(manifests string) {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "policies.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.change(r.file(file)...)
}

// allow is what all flows need; with closed nothing else is allowed.
func (r *revocation) allow(closed bool) {
	r.t.Helper()
	lines := []string{"in server Ingress client", "out client Egress server", "no-out server Egress client", "no-in client Ingress server"}
	if closed {
		lines[2], lines[3] = "no-out server Egress -", "no-in client Ingress -"
	}
	r.policies(lines...)
}

// open establishes flows of all kinds, each from a separate port.
func (r *revocation) open() (out []*revocable) {
	r.t.Helper()
	for i, server := range []string{"10.1.1.3", "10.1.2.3"} {
		for _, six := range []bool{false, true} {
			vip := fmt.Sprintf("10.96.0.%d", i+1)
			if six {
				server, vip = fmt.Sprintf("fd00:1:%d::3", i+1), fmt.Sprintf("fd00:96::%d", i+1)
			}
			out = append(out, r.dial(server, 0, model.ICMP, false, i == 1))
			for _, k := range []struct {
				proto        model.Protocol
				port, behind uint16
			}{{model.TCP, 80, 8080}, {model.UDP, 53, 5353}, {model.TCP, 81, 40000}, {model.UDP, 54, 41000}} {
				out = append(out, r.dial(server, k.behind, k.proto, false, i == 1))
				if !six || r.renderer == agent.RendererCNAT {
					out = append(out, r.dial(vip, k.port, k.proto, true, i == 1))
				}
			}
		}
	}
	r.flows += len(out)
	return out
}

func (r *revocation) dial(to string, port uint16, proto model.Protocol, vip, far bool) *revocable {
	r.t.Helper()
	pod := r.objects[model.Ref{Kind: model.KindPod, Namespace: "prod", Name: "client"}].(*model.Pod)
	k := &revocable{r: r, to: fmt.Sprintf("%s %s:%d", proto, to, port), vip: vip, far: far, from: place{node: "node-1", door: cni.PodInterface(pod.ID), addr: pod.IPs[0]}}
	if strings.Contains(to, ":") {
		k.from.addr = pod.IPs[1]
	}
	if r.port++; r.port < 50000 {
		r.port = 50000
	}
	k.request = packet.Packet{Src: k.from.addr, Dst: netip.MustParseAddr(to), Proto: proto, SrcPort: r.port, DstPort: port}
	if proto == model.ICMP {
		k.request = packet.NewPing(k.from.addr, netip.MustParseAddr(to), r.port)
	}
	if !k.sends(k.request.Opening()) || !k.back(k.answer) || !k.asks() || !k.pushes() {
		r.t.Fatalf("%s: %s is not established", r.name, k.to)
	}
	return k
}

// sends reports whether a packet of the client's reaches a server, which will answer it.
func (k *revocable) sends(p packet.Packet) bool {
	k.r.t.Helper()
	j, err := k.r.travel(k.from, same(p))
	if err != nil {
		k.r.t.Fatalf("%s: %s: %v", k.r.name, k.to, err)
	}
	if j.lost != "" {
		return false
	}
	k.server, k.answer = j.end, j.reply()
	return true
}

// back reports whether a packet of the server's reaches the client as what it expects.
func (k *revocable) back(f flight) bool {
	k.r.t.Helper()
	j, err := k.r.travel(k.server, f)
	if err != nil {
		k.r.t.Fatalf("%s: %s: %v", k.r.name, k.to, err)
	}
	return j.lost == "" && j.end.door == k.from.door && j.real.Src == k.request.Dst && j.real.SrcPort == k.request.Reply().SrcPort
}

func (k *revocable) asks() bool   { return k.sends(k.request.GoingOn()) }
func (k *revocable) pushes() bool { return k.back(k.answer.both(packet.Packet.GoingOn)) }

// ends revokes the rule of established flows.
func (r *revocation) ends(revoked string, closed, serverFirst bool) {
	r.t.Helper()
	r.allow(closed)
	talks := r.open()
	r.policies(map[string]string{"in": "in server Ingress -", "out": "out client Egress -"}[revoked])
	r.end(talks, revoked, closed, serverFirst)
}

// end tries to go on with flows whose rule is revoked.
func (r *revocation) end(talks []*revocable, revoked string, closed, serverFirst bool) {
	r.t.Helper()
	for _, k := range talks {
		for range 3 {
			if serverFirst {
				k.pushes()
			}
			if r.asked++; k.asks() {
				r.reached++
				r.t.Errorf("%s: %s: a request gets through", r.name, k.to)
			}
			if r.pushed++; k.pushes() {
				r.heard++
				if closed && !(k.vip && k.far && revoked == "out" && r.renderer == agent.RendererNAT44) {
					r.t.Errorf("%s: %s: what the server sends gets through", r.name, k.to)
				}
			}
		}
	}
}

// goesOn changes other things than what established flows need.
func (r *revocation) goesOn() {
	r.t.Helper()
	r.name = fmt.Sprintf("%s, allowed", r.renderer)
	r.allow(true)
	talks := r.open()
	every := func(what string, clientFirst bool) {
		r.t.Helper()
		for _, k := range talks {
			r.went++
			if !clientFirst && !k.pushes() || !k.asks() || !k.pushes() {
				r.lost++
				r.t.Errorf("%s, %s: %s does not go on", r.name, what, k.to)
			}
		}
	}
	r.policies("in server Ingress client,other", "out client Egress other,server", "no-out server Egress other", "no-in client Ingress other")
	every("rules changed", false)
	r.policies("more-in server Ingress other", "more-out client Egress other")
	every("policies were added", false)
	for _, name := range r.names() {
		if err := r.nodes[name].restartAgents(); err != nil {
			r.t.Fatal(err)
		}
	}
	every("agents restarted", false)
	for _, name := range r.names() {
		if err := r.nodes[name].restartVPPs(); err != nil {
			r.t.Fatal(err)
		}
	}
	var direct []*revocable
	for _, k := range talks {
		if !k.vip { // the translation is forgotten
			direct = append(direct, k)
		}
	}
	talks = direct
	every("VPPs restarted", true)
}
