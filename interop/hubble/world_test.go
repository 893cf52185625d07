package hubble

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/flows/hubble"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
)

const objects = `
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
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}], phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: prod, labels: {app: client, tier: front}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}], phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: far, namespace: prod, labels: {app: far}}
spec: {nodeName: node-2, containers: [{name: c, image: i}]}
status: {podIP: 10.1.2.2, podIPs: [{ip: 10.1.2.2}], phase: Running}
---
apiVersion: v1
kind: Service
metadata: {name: front, namespace: shop}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: front-1, namespace: shop, labels: {kubernetes.io/service-name: front}}
addressType: IPv4
ports: [{port: 8080, name: "", protocol: TCP}]
endpoints: [{addresses: [10.1.1.2], nodeName: node-1}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {}
  policyTypes: [Ingress]
  ingress: [{from: [{namespaceSelector: {}}, {ipBlock: {cidr: 10.2.0.0/16}}], ports: [{port: 8080}]}]
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
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: prod}
`

// startNode runs the agent of a node over a simulated VPP, with Hubble's API at an address, until it is in sync. The API announces these nodes;
// none: those of the objects.
func startNode(t *testing.T, cfg hubble.Config, nodes ...hubble.Node) *sim.VPP {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Version = "v9.9"
	server, err := hubble.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	serve := server.Serve
	if len(nodes) > 0 { // nodes of objects cannot have addresses of loopback
		serve = func(ctx context.Context, w *agentflows.Watcher, _ agentflows.Loop) error {
			return server.Run(ctx, w, func(context.Context) ([]hubble.Node, error) { return nodes, nil }, func(net.Addr) {})
		}
	}
	v := sim.New(sim.Config{PuntLocal: true})
	synced := make(chan struct{}, 100)
	a, err := agent.New(agent.Config{
		NodeName: cfg.Node, VPP: vpp.Config{Dial: v.Dial}, Override: cni.Located(),
		Sources: map[string]agent.Source{manifest.Name: cni.New(v, cfg.Node).Before(manifest.New(manifest.Config{Paths: []string{dir}}), func(err error) { panic(err) })},
		Process: config.Process{
			OnCommitted: func(c *event.Committed) {
				if c.Err == nil {
					synced <- struct{}{}
				}
			},
			Flows: agentflows.New(agentflows.Config{
				Node: cfg.Node, Every: 200 * time.Millisecond, Folder: "/tmp", Name: fmt.Sprintf("interop%d", time.Now().UnixNano()),
				Beside: []func(context.Context, *agentflows.Watcher, agentflows.Loop) error{serve},
			}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		v.Close()
	})
	for {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-synced:
		case <-time.After(10 * time.Millisecond):
		}
		if st, err := a.Status(t.Context()); err == nil && st.InSync && st.Ifs != nil && len(st.Ifs.Pods) > 0 {
			return v
		}
	}
}

func send(v *sim.VPP, in, from, to string) {
	v.Send(in, packet.NewTCP(netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)).Opening())
}
