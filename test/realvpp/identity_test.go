package realvpp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// identityWorld is one node with an isolated pod behind a Service, a pod that may reach it, one that may not and lies, and one whose
// egress is restricted as well.
const identityWorld = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24, "fd00:1::/64"]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}, {type: InternalIP, address: "fd00:f::1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: victim, namespace: shop, labels: {app: redis}}
spec: {nodeName: node-1, containers: [{name: c, image: c}]}
status: {phase: Running, podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}, {ip: "fd00:1::3"}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: friend, namespace: shop, labels: {app: friend}}
spec: {nodeName: node-1, containers: [{name: c, image: c}]}
status: {phase: Running, podIP: 10.1.1.4, podIPs: [{ip: 10.1.1.4}, {ip: "fd00:1::4"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: evil, namespace: shop, labels: {app: evil}}
spec: {nodeName: node-1, containers: [{name: c, image: c}]}
status: {phase: Running, podIP: 10.1.1.66, podIPs: [{ip: 10.1.1.66}, {ip: "fd00:1::66"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: caged, namespace: shop, labels: {app: caged}}
spec: {nodeName: node-1, containers: [{name: c, image: c}]}
status: {phase: Running, podIP: 10.1.1.67, podIPs: [{ip: 10.1.1.67}, {ip: "fd00:1::67"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: sealed, namespace: shop, labels: {app: sealed}}
spec: {nodeName: node-1, containers: [{name: c, image: c}]}
status: {phase: Running, podIP: 10.1.1.68, podIPs: [{ip: 10.1.1.68}, {ip: "fd00:1::68"}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: sealed, namespace: shop}
spec: {podSelector: {matchLabels: {app: sealed}}, policyTypes: [Ingress]}
---
apiVersion: v1
kind: Service
metadata: {name: redis, namespace: shop}
spec: {clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20], selector: {app: redis}, ports: [{port: 6379, protocol: TCP, name: tcp}, {port: 6379, protocol: UDP, name: udp}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: redis-1, namespace: shop, labels: {kubernetes.io/service-name: redis}}
addressType: IPv4
ports: [{port: 6379, protocol: TCP, name: tcp}, {port: 6379, protocol: UDP, name: udp}]
endpoints: [{addresses: [10.1.1.3], conditions: {ready: true}, nodeName: node-1, targetRef: {kind: Pod, namespace: shop, name: victim}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: redis, namespace: shop}
spec:
  podSelector: {matchLabels: {app: redis}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: cage, namespace: shop}
spec:
  podSelector: {matchLabels: {app: caged}}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: 10.1.1.0/24}}]}, {to: [{ipBlock: {cidr: "fd00:1::/64"}}]}]
`

// invitingWorld adds a pod that may neither send nor be sent anything, and a Service that leads to a pod everybody else may reach.
const invitingWorld = identityWorld + `
---
apiVersion: v1
kind: Pod
metadata: {name: cell, namespace: shop, labels: {app: cell}}
spec: {nodeName: node-1, containers: [{name: c, image: c}]}
status: {phase: Running, podIP: 10.1.1.69, podIPs: [{ip: 10.1.1.69}, {ip: "fd00:1::69"}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: cell, namespace: shop}
spec: {podSelector: {matchLabels: {app: cell}}, policyTypes: [Ingress, Egress]}
---
apiVersion: v1
kind: Service
metadata: {name: lure, namespace: shop}
spec: {clusterIP: 10.96.0.21, clusterIPs: [10.96.0.21], selector: {app: evil}, ports: [{port: 80, targetPort: 8080, protocol: TCP, name: tcp}, {port: 80, targetPort: 8080, protocol: UDP, name: udp}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: lure-1, namespace: shop, labels: {kubernetes.io/service-name: lure}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP, name: tcp}, {port: 8080, protocol: UDP, name: udp}]
endpoints: [{addresses: [10.1.1.66], conditions: {ready: true}, nodeName: node-1, targetRef: {kind: Pod, namespace: shop, name: evil}}]
`

// lie is a packet that a pod sends, and where it leaves VPP; "" nowhere.
type lie struct{ from, packet, want string }

const (
	victimDoor = "pod-shop/victim"
	friendDoor = "pod-shop/friend"
)

// spoofs are packets with sources that are not the sender's, and a few that are.
var spoofs = []lie{
	{"friend", "tcp 10.1.1.4:4000 -> 10.1.1.3:6379 [S]", victimDoor},
	{"friend", "tcp [fd00:1::4]:4000 -> [fd00:1::3]:6379 [S]", victimDoor},
	{"evil", "tcp 10.1.1.66:4001 -> 10.1.1.3:6379 [S]", ""},
	{"evil", "tcp [fd00:1::66]:4001 -> [fd00:1::3]:6379 [S]", ""},
	{"evil", "tcp 10.1.1.66:4001 -> 10.1.1.4:80 [S]", friendDoor},
	{"evil", "tcp [fd00:1::66]:4001 -> [fd00:1::4]:80 [S]", friendDoor},
	{"evil", "udp 10.1.1.66:4001 -> 10.1.1.4:80", friendDoor},
	{"caged", "tcp 10.1.1.67:4001 -> 10.1.1.4:80 [S]", friendDoor},
	{"caged", "tcp 10.1.1.67:4001 -> 192.0.2.200:80 [S]", ""},
	// As the node, the NAT loopback, a pod that may, an address outside, nobody.
	{"evil", "tcp 192.168.16.1:4002 -> 10.1.1.3:6379 [S]", ""},
	{"evil", "udp 192.168.16.1:4002 -> 10.1.1.3:6379", ""},
	{"evil", "tcp 10.1.1.254:4003 -> 10.1.1.3:6379 [S]", ""},
	{"evil", "tcp 10.1.1.4:4004 -> 10.1.1.3:6379 [S]", ""},
	{"evil", "udp 10.1.1.4:4004 -> 10.96.0.20:6379", ""},
	{"evil", "tcp 198.51.100.7:4005 -> 10.1.1.4:80 [S]", ""},
	{"evil", "udp 0.0.0.0:4006 -> 10.1.1.4:80", ""},
	{"evil", "tcp [fd00:f::1]:4007 -> [fd00:1::3]:6379 [S]", ""},
	{"evil", "tcp [fd00:1::4]:4008 -> [fd00:1::3]:6379 [S]", ""},
	{"evil", "tcp [fe80::66]:4009 -> [fd00:1::4]:80 [S]", ""},
	// With the address of a neighbouring pod, to a pod that all may reach: its packet would count as the neighbour's.
	{"evil", "tcp 10.1.1.67:4010 -> 10.1.1.4:80 [S]", ""},
	{"caged", "tcp 10.1.1.66:4011 -> 10.1.1.4:80 [S]", ""},
	{"caged", "udp 192.168.16.1:4011 -> 10.1.1.4:80", ""},
	{"caged", "tcp [fd00:1::66]:4011 -> [fd00:1::4]:80 [S]", ""},
	// The isolated pod's own egress is open; it may not lie either.
	{"victim", "tcp 10.1.1.3:4012 -> 10.1.1.4:80 [S]", friendDoor},
	{"victim", "tcp 10.1.1.66:4012 -> 10.1.1.4:80 [S]", ""},
	{"victim", "tcp [fd00:1::66]:4012 -> [fd00:1::4]:80 [S]", ""},
}

// forgeries are packets from outside the node, under addresses that only the node has, and some under others.
var forgeries = []lie{
	{cni.Uplink, "tcp 10.1.1.4:6000 -> 10.1.1.3:6379 [S]", ""},
	{cni.Uplink, "tcp 10.1.1.4:6000 -> 10.96.0.20:6379 [S]", ""},
	{cni.Uplink, "udp 10.1.1.4:6000 -> 10.1.1.3:6379", ""},
	{cni.Uplink, "tcp 10.1.1.99:6000 -> 10.1.1.4:80 [S]", ""},
	{cni.Uplink, "tcp 10.1.1.254:6000 -> 10.1.1.3:6379 [S]", ""},
	{cni.Uplink, "udp 10.1.1.254:6000 -> 10.1.1.3:6379", ""},
	{cni.Uplink, "tcp 169.254.1.2:6000 -> 10.1.1.3:6379 [S]", ""},
	{cni.Uplink, "udp 169.254.1.2:6000 -> 10.1.1.3:6379", ""},
	{cni.Uplink, "tcp 192.168.16.1:6000 -> 10.1.1.3:6379 [S]", ""},
	{cni.Uplink, "tcp [fd00:1::4]:6000 -> [fd00:1::3]:6379 [S]", ""},
	{cni.Uplink, "udp [fd00:1::4]:6000 -> [fd00:1::3]:6379", ""},
	{cni.Uplink, "tcp [fd00:f::1]:6000 -> [fd00:1::3]:6379 [S]", ""},
	{cni.Overlay, "tcp 10.1.1.4:6001 -> 10.1.1.3:6379 [S]", ""},
	{cni.Overlay, "udp 169.254.1.2:6001 -> 10.1.1.3:6379", ""},
	{cni.Overlay, "tcp [fd00:f::1]:6001 -> [fd00:1::3]:6379 [S]", ""},
	{cni.Uplink, "tcp 198.51.100.7:6002 -> 10.1.1.4:80 [S]", friendDoor},
	{cni.Uplink, "tcp 198.51.100.7:6002 -> 10.1.1.3:6379 [S]", ""},
	{cni.Overlay, "tcp 10.1.2.7:6002 -> 10.1.1.4:80 [S]", friendDoor},
	{cni.Overlay, "udp 10.1.2.7:6002 -> 10.1.1.4:80", friendDoor},
	{cni.Uplink, "tcp [2001:db8::7]:6002 -> [fd00:1::4]:80 [S]", friendDoor},
	{"friend", "tcp 10.1.1.4:6003 -> 198.51.100.9:80 [S]", cni.Uplink},
	{"friend", "tcp 10.1.1.4:6003 -> 10.1.1.3:6379 [S]", victimDoor},
}

// probes are what the node's own processes send to its pods, from the host link: kubelet's probes must get through.
var probes = []lie{
	{"node", "tcp 169.254.1.2:5000 -> 10.1.1.3:6379 [S]", victimDoor},
	{"victim", "tcp 10.1.1.3:6379 -> 169.254.1.2:5000 [SA]", cni.Host},
	{"node", "tcp 169.254.1.2:5000 -> 10.1.1.3:6379 [A]", victimDoor},
	{"node", "udp 169.254.1.2:5000 -> 10.1.1.3:6379", victimDoor},
	{"victim", "udp 10.1.1.3:6379 -> 169.254.1.2:5000", cni.Host},
	{"node", "tcp [fd00:f::1]:5000 -> [fd00:1::3]:6379 [S]", victimDoor},
	{"victim", "tcp 10.1.1.3:4013 -> 169.254.1.2:10250 [S]", cni.Host},
	{"evil", "tcp 169.254.1.2:5000 -> 10.1.1.3:6379 [S]", ""},
	{"evil", "tcp 10.1.1.66:5001 -> 169.254.1.2:10250 [S]", cni.Host},
}

// bypasses are what a pod can do with sessions that dropped packets left: the same five-tuple's way back, dialled directly.
var bypasses = []lie{
	{"evil", "tcp 10.1.1.66:4000 -> 10.96.0.20:6379 [S]", ""},
	{"evil", "tcp 10.1.1.66:4000 -> 10.1.1.3:6379 [S]", ""},
	{"evil", "tcp 10.1.1.66:4000 -> 10.1.1.3:6379 [A]", ""},
	{"evil", "udp 10.1.1.66:4000 -> 10.96.0.20:6379", ""},
	{"evil", "udp 10.1.1.66:4000 -> 10.1.1.3:6379", ""},
	{"friend", "tcp 10.1.1.4:4000 -> 10.96.0.20:6379 [S]", victimDoor},
	{"friend", "udp 10.1.1.4:4000 -> 10.96.0.20:6379", victimDoor},
}

// associations are of SCTP between isolated pods: what one may not dial is not opened by what it was dialled.
var associations = []lie{
	{"victim", "sctp 10.1.1.3:4000 -> 10.1.1.68:4000 [INIT]", ""},
	{"sealed", "sctp 10.1.1.68:4000 -> 10.1.1.3:4000 [INIT]", ""},
	{"victim", "sctp 10.1.1.3:4000 -> 10.1.1.68:4000 [INIT]", ""},
	{"sealed", "sctp [fd00:1::68]:4000 -> [fd00:1::3]:4000 [INIT]", ""},
	{"victim", "sctp [fd00:1::3]:4000 -> [fd00:1::68]:4000 [INIT]", ""},
	{"evil", "sctp [fd00:1::66]:4000 -> [fd00:1::4]:4000 [INIT]", friendDoor},
	{"friend", "sctp [fd00:1::4]:4000 -> [fd00:1::3]:4000 [INIT]", victimDoor},
}

// invitations are packets of a pod that policies deny both directions, to a Service, and of the Service's endpoint to that pod: the first packet
// leaves sessions, and nothing passes by them (ADR 12).
var invitations = []lie{
	{"cell", "tcp 10.1.1.69:40000 -> 10.1.1.66:8080 [S]", ""},
	{"evil", "tcp 10.1.1.66:8080 -> 10.1.1.69:40000 [S]", ""},
	{"cell", "tcp 10.1.1.69:40001 -> 10.96.0.21:80 [S]", ""},
	{"evil", "tcp 10.1.1.66:8081 -> 10.1.1.69:40001 [S]", ""},
	{"evil", "tcp 10.1.1.66:8080 -> 10.1.1.69:40001 [S]", ""},
	{"cell", "tcp 10.1.1.69:40001 -> 10.96.0.21:80 [SA]", ""},
	{"evil", "tcp 10.1.1.66:8080 -> 10.1.1.69:40001 [PA]", ""},
	{"cell", "udp 10.1.1.69:40002 -> 10.96.0.21:80", ""},
	{"evil", "udp 10.1.1.66:8080 -> 10.1.1.69:40002", ""},
	{"cell", "udp 10.1.1.69:40002 -> 10.96.0.21:80", ""},
	{"evil", "tcp 10.1.1.66:8080 -> 10.1.1.4:80 [S]", friendDoor},
	{"evil", "udp 10.1.1.66:8080 -> 10.1.1.4:80", friendDoor},
}

func identityManifest(t *testing.T, world string) []event.Change {
	t.Helper()
	file := filepath.Join(t.TempDir(), "world.yaml")
	if err := os.WriteFile(file, []byte(world), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := manifest.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range changes {
		if ch.Err != nil {
			t.Fatal(ch.Err)
		}
	}
	return changes
}

// identities are the settings in which nobody gets another's identity.
var identities = map[string]agent.Config{
	"nat44": {},
	"cnat":  {Services: config.ServedBy(agent.RendererCNAT)},
}

// liar is a node that packets can be sent to: a simulated VPP, or a twin.
type liar func(in string, p packet.Packet) (left []string, hops any)

// liars opens the world in the sim.
func simulated(t *testing.T, cfg agent.Config, world string) liar {
	t.Helper()
	changes := identityManifest(t, world)
	v := sim.New(sim.Config{Seed: 1})
	t.Cleanup(v.Close)
	if err := cni.New(v, "node-1").Apply(changes); err != nil {
		t.Fatal(err)
	}
	cfg.NodeName, cfg.VPP.Dial, cfg.Override = "node-1", v.Dial, cni.Located()
	cfg.Sources = map[string]agent.Source{source: agent.Fed{}}
	a, err := agent.NewStepper(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	if err := a.Feed(context.Background(), &event.Update{Source: source, Changes: changes}, &event.SyncStatus{Source: source, Status: event.InSync}); err != nil {
		t.Fatal(err)
	}
	return func(in string, p packet.Packet) ([]string, any) {
		fate := v.Send(in, p)
		var left []string
		for _, out := range fate.Out {
			left = append(left, out.Interface)
		}
		return left, fate
	}
}

// doubled opens the world in a real VPP and in the sim.
func doubled(t *testing.T, cfg agent.Config, world string) liar {
	t.Helper()
	w := startTwin(t, theVPP(t), "node-1", cfg)
	if err := w.apply(identityManifest(t, world)); err != nil {
		t.Fatal(err)
	}
	return func(in string, p packet.Packet) ([]string, any) {
		landed, err := w.send(in, same(p))
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, l := range landed {
			left = append(left, l.at)
		}
		return left, fmt.Sprint(landed)
	}
}

// check sends packets and compares where they go.
func (send liar) check(t *testing.T, lies []lie) {
	t.Helper()
	for _, l := range lies {
		p, err := packet.Parse(l.packet)
		if err != nil {
			t.Fatalf("%s: %v", l.packet, err)
		}
		door := "pod-shop/" + l.from
		switch l.from {
		case "node":
			door = cni.Host
		case cni.Uplink, cni.Overlay:
			door = l.from
		}
		left, hops := send(door, p)
		want := []string{l.want}
		if l.want == "" {
			want = nil
		}
		if !slices.Equal(left, want) {
			t.Errorf("%s sends %s: leaves by %q, not %q\n%v", l.from, l.packet, left, want, hops)
		}
	}
}

// TestSourceCheck: no pod sends from an address that is not its own, and nobody outside from one that only the node has, in the sim.
func TestSourceCheck(t *testing.T) {
	for name, cfg := range identities {
		t.Run(name, func(t *testing.T) {
			simulated(t, cfg, identityWorld).check(t, slices.Concat(spoofs, forgeries, probes))
		})
	}
}

// TestVPPSourceCheck is the same on a real VPP, which does with every packet what the sim does.
func TestVPPSourceCheck(t *testing.T) {
	theVPP(t)
	for name, cfg := range identities {
		t.Run(name, func(t *testing.T) { doubled(t, cfg, identityWorld).check(t, slices.Concat(spoofs, forgeries, probes)) })
	}
}

// TestNATBypass: no session lets a pod reach an isolated one, in the sim.
func TestNATBypass(t *testing.T) {
	for name, cfg := range identities {
		t.Run(name, func(t *testing.T) { simulated(t, cfg, identityWorld).check(t, bypasses) })
	}
}

// TestVPPNATBypass is the same on a real VPP.
func TestVPPNATBypass(t *testing.T) {
	theVPP(t)
	for name, cfg := range identities {
		t.Run(name, func(t *testing.T) { doubled(t, cfg, identityWorld).check(t, bypasses) })
	}
}

// TestServicesInvite: who dials a Service whose endpoint it may not reach is not reached by that endpoint.
func TestServicesInvite(t *testing.T) {
	for name, cfg := range identities {
		t.Run(name, func(t *testing.T) { simulated(t, cfg, invitingWorld).check(t, invitations) })
	}
}

// TestVPPServicesInvite is the same on a real VPP.
func TestVPPServicesInvite(t *testing.T) {
	path := theVPP(t)
	for name, cfg := range identities {
		if cfg.Services.Renderer.Choice == agent.RendererCNAT && isNewerVPP(path) {
			continue // its cnat is another one than the simulated one
		}
		t.Run(name, func(t *testing.T) { doubled(t, cfg, invitingWorld).check(t, invitations) })
	}
}

// TestNodeAddressesAreNobodys: if no host-link address is known, a packet with the node's address reaches no pod with policies, and the status
// names the flag; a setting admits it nevertheless, and then the bypass is open.
func TestNodeAddressesAreNobodys(t *testing.T) {
	node := lie{"node", "tcp 192.168.16.1:5000 -> 10.1.1.3:6379 [S]", ""}
	open := lie{"node", "tcp 192.168.16.1:5001 -> 10.1.1.4:80 [S]", friendDoor}
	simulated(t, agent.Config{}, identityWorld).check(t, []lie{node, open})
	node.want = victimDoor
	trusting := slices.Clone(bypasses)
	trusting[1].want, trusting[2].want, trusting[4].want = victimDoor, victimDoor, victimDoor
	simulated(t, agent.Config{Policies: config.Policies{Config: policy.Config{TrustNodeAddresses: true}}}, identityWorld).check(t, append(trusting, node, open))
	simulated(t, agent.Config{Services: config.ServedBy(agent.RendererCNAT)}, identityWorld).check(t, []lie{node, open})
}

// TestSCTPFailsClosed: a denied attempt of SCTP opens no way back, in the sim.
func TestSCTPFailsClosed(t *testing.T) {
	for name, cfg := range identities {
		t.Run(name, func(t *testing.T) { simulated(t, cfg, identityWorld).check(t, associations) })
	}
}

// TestVPPSCTPFailsClosed is the same on a real VPP.
func TestVPPSCTPFailsClosed(t *testing.T) {
	theVPP(t)
	for name, cfg := range identities {
		t.Run(name, func(t *testing.T) { doubled(t, cfg, identityWorld).check(t, associations) })
	}
}
