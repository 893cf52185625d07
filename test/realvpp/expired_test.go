package realvpp

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// expiredWorld is a node, another one, and a Service with session affinity whose node port pods of the first node translate themselves.
const expiredWorld = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
spec: {podCIDR: 10.1.2.0/24, podCIDRs: [10.1.2.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
spec: {nodeName: node-1, containers: [{name: c, image: c}]}
status: {phase: Running, podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}]}
---
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: shop}
spec: {type: NodePort, clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20], externalTrafficPolicy: Local, sessionAffinity: ClientIP, selector: {app: dns}, ports: [{port: 53, nodePort: 30053, protocol: UDP, name: udp}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: dns-1, namespace: shop, labels: {kubernetes.io/service-name: dns}}
addressType: IPv4
ports: [{port: 53, protocol: UDP, name: udp}]
endpoints: [{addresses: [10.1.1.2], conditions: {ready: true}, nodeName: node-1, targetRef: {kind: Pod, namespace: shop, name: a}}]
`

// TestVPPOutlivesExpiredSessions: a packet from the node port of another node to this node's stack makes a session. When it has
// expired, an answer dials that node port. VPP reads the client's address for the mapping's affinity then, by a path that has none: with
// session affinity on such a mapping that packet kills VPP.
func TestVPPOutlivesExpiredSessions(t *testing.T) {
	w := startTwin(t, theVPP(t), "node-1", agent.Config{Services: config.Services{Renderer: builtin.Config{NAT44: nat44.Config{TimeoutUDP: 1}}}})
	file := filepath.Join(t.TempDir(), "world.yaml")
	if err := os.WriteFile(file, []byte(expiredWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := manifest.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.apply(changes); err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct{ in, packet, want string }{
		{cni.Uplink, "udp 192.168.16.2:30053 -> 192.168.16.1:4000", cni.Host},
		{cni.Host, "udp 192.168.16.1:4000 -> 192.168.16.2:30053", "pod-shop/a"},
	} {
		p, err := packet.Parse(l.packet)
		if err != nil {
			t.Fatal(err)
		}
		landed, err := w.send(l.in, same(p))
		if err != nil || w.lab.alive() != nil || w.sim.Crashed() != nil {
			t.Fatalf("%s: %v; vpp: %v; sim: %v", l.packet, err, w.lab.alive(), w.sim.Crashed())
		}
		t.Logf("%s: %v", l.packet, landed)
		time.Sleep(2500 * time.Millisecond) // more than the session lives
	}
}
