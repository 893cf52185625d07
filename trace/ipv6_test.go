package trace

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

const dualStack = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24, "fd00:1:1::/64"]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}, {type: InternalIP, address: "fd00:16::1"}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
spec: {podCIDR: 10.1.2.0/24, podCIDRs: [10.1.2.0/24, "fd00:1:2::/64"]}
status: {addresses: [{type: InternalIP, address: 192.168.16.2}, {type: InternalIP, address: "fd00:16::2"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {phase: Running, podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}, {ip: "fd00:1:1::2"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: six, namespace: default}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {phase: Running, podIP: "fd00:1:1::6", podIPs: [{ip: "fd00:1:1::6"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {nodeName: node-2, containers: [{name: c, image: i}]}
status: {phase: Running, podIP: 10.1.2.2, podIPs: [{ip: 10.1.2.2}, {ip: "fd00:1:2::2"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10, "fd00:96::10"]
  ipFamilies: [IPv4, IPv6]
  ports: [{port: 80, nodePort: 30080}]
---
apiVersion: v1
kind: Service
metadata: {name: idle, namespace: default}
spec: {clusterIP: "fd00:96::11", clusterIPs: ["fd00:96::11"], ipFamilies: [IPv6], ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-4, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.1.2.2], nodeName: node-2}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-6, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{port: 8080}]
endpoints: [{addresses: ["fd00:1:2::2"], nodeName: node-2}, {addresses: ["fd00:1:1::6"], nodeName: node-1}]
`

// dual returns a cluster of both families.
func dual(t *testing.T, r agent.ServiceRenderer) *Cluster {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(dualStack), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := manifest.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCluster(Config{Agent: agent.Config{Services: config.ServedBy(r)}})
	t.Cleanup(c.Close)
	if err := c.Apply(context.Background(), changes); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestServicesOfBothFamilies: questions about IPv6 Services get the same answers as those about IPv4 ones, with each
// renderer.
func TestServicesOfBothFamilies(t *testing.T) {
	for _, r := range []agent.ServiceRenderer{agent.RendererAuto, agent.RendererCNAT} {
		t.Run(string(r), func(t *testing.T) {
			c := dual(t, r)
			for _, tc := range []struct{ from, to, proto, want string }{
				{"pod:default/client", "service:default/web:80", "TCP", "delivered pod:default/web=10.1.2.2:8080<-10.1.1.2"},
				{"pod:default/client", "[fd00:96::10]:80", "TCP", "delivered pod:default/six=[fd00:1:1::6]:8080<-fd00:1:1::2 pod:default/web=[fd00:1:2::2]:8080<-fd00:1:1::2"},
				{"pod:default/six", "service:default/web:80", "TCP", "delivered pod:default/six=[fd00:1:1::6]:8080<-fd00:16::1 pod:default/web=[fd00:1:2::2]:8080<-fd00:1:1::6"},
				{"node:node-2", "[fd00:96::10]:80", "TCP", "delivered pod:default/six=[fd00:1:1::6]:8080<-fd00:16::2 pod:default/web=[fd00:1:2::2]:8080<-fd00:16::2"},
				{"external:2001:db8::7@node-1", "[fd00:16::1]:30080", "TCP", "delivered pod:default/six=[fd00:1:1::6]:8080<-2001:db8::7 pod:default/web=[fd00:1:2::2]:8080<-fd00:16::1"},
				{"pod:default/client", "service:default/idle:80", "TCP", "rejected"},
				{"pod:default/six", "service:default/idle:80", "UDP", "rejected"},
				{"external:2001:db8::7@node-1", "[fd00:96::11]:80", "TCP", "rejected"},
				{"pod:default/six", "[fd00:96::10]:81", "TCP", "rejected"},
				{"pod:default/six", "pod:default/web:80", "TCP", "delivered pod:default/web=[fd00:1:2::2]:80<-fd00:1:1::6"},
				{"pod:default/six", "[2001:db8::9]:53", "UDP", "delivered 2001:db8::9=[2001:db8::9]:53<-fd00:16::1"},
			} {
				a := c.Answer(Question{tc.from, tc.to, tc.proto})
				if got := line(a); got != tc.want {
					t.Errorf("%s %s %s:\ngot  %s (%s)\nwant %s", tc.from, tc.to, tc.proto, got, a.Reason, tc.want)
				}
			}
			if a := c.Answer(Question{"pod:default/six", "service:default/idle:80", "TCP"}); !strings.Contains(a.Reason, "Service default/idle has no endpoint for port 80/TCP: ICMPv6 no route") {
				t.Errorf("a service without endpoints is rejected because of %q", a.Reason)
			}
		})
	}
}

// TestNoRendererServesIPv6 runs an agent without a renderer for IPv6.
func TestNoRendererServesIPv6(t *testing.T) {
	a := dual(t, agent.RendererNAT44).Answer(Question{"pod:default/six", "service:default/web:80", "TCP"})
	if a.Verdict != Dropped || !strings.Contains(a.Reason, "Service default/web: IPv6: no active renderer serves it") {
		t.Errorf("%s (%s)", a.Verdict, a.Reason)
	}
}
