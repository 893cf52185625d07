package recommend

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/flows"
)

func pod(ns, name, workload, addr string, labels ...string) flows.Peer {
	p := flows.Peer{Kind: flows.Pod, Namespace: ns, Name: name, Workload: workload, Node: "node-1", Address: netip.MustParseAddr(addr), Labels: map[string]string{}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		p.Labels[k] = v
	}
	return p
}

func outside(addr string) flows.Peer {
	return flows.Peer{Kind: flows.Outside, Address: netip.MustParseAddr(addr)}
}

func flow(from, to flows.Peer, protocol string, port uint16) flows.Flow {
	return flows.Flow{Source: from, Destination: to, Protocol: protocol, Port: port, Verdict: flows.Allowed, Counts: flows.Counts{Connections: 2}}
}

func translated(f flows.Flow, dialled, source string) flows.Flow {
	f.Translation = &flows.Translation{Dialled: netip.MustParseAddrPort(dialled), Source: netip.MustParseAddrPort(source)}
	return f
}

var ( // read only
	web0    = pod("prod", "web-0", "web", "10.1.1.2", "app=web", "tier=front", "pod-template-hash=1")
	web1    = pod("prod", "web-1", "web", "10.1.1.3", "app=web", "tier=back", "pod-template-hash=2")
	client  = pod("dev", "client", "client", "10.1.1.4", "app=client")
	db      = pod("prod", "db", "", "10.1.1.5")
	service = flows.Peer{Kind: flows.Service, Namespace: "prod", Name: "web", Address: netip.MustParseAddr("10.96.0.1")}
	node    = flows.Peer{Kind: flows.Node, Name: "node-1", Address: netip.MustParseAddr("192.168.16.1")}
	other   = flows.Peer{Kind: flows.Node, Name: "node-2", Address: netip.MustParseAddr("192.168.16.2")}
)

func TestPolicies(t *testing.T) {
	dropped := flow(client, web0, "TCP", 1)
	dropped.Verdict = flows.Dropped
	r := Policies([]flows.Flow{
		flow(client, web0, "TCP", 8080),
		flow(client, web1, "TCP", 8080), // the same rule
		flow(client, web1, "TCP", 443),
		dropped,
		flow(web0, web0, "TCP", 9),  // to itself
		flow(web1, db, "ICMP", 0),   // a protocol without ports
		flow(node, web0, "TCP", 80), // always passes
		flow(other, web0, "TCP", 80),
		flow(client, service, "TCP", 80), // the next one has its endpoint
		translated(flow(client, web0, "TCP", 8080), "10.96.0.1:80", "10.1.1.4:1"),
		translated(flow(outside("192.0.2.7"), web0, "TCP", 8080), "192.168.16.1:30000", "10.1.1.254:1"), // the receiver sees another source
		flow(web0, service, "TCP", 81),
		flow(client, outside("192.0.2.8"), "TCP", 80), // of another namespace
	}, "prod")
	got, err := r.YAML()
	if err != nil {
		t.Fatal(err)
	}
	const want = `---
# Flows of prod/db
# Its pods have no label in common: the policy applies to all pods of the namespace.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: recommended-db
  namespace: prod
spec:
  podSelector: {}
  policyTypes:
  - Ingress
  ingress:
  # 1 flows, 2 connections: prod/web-1 -> prod/db ICMP
  - from:
    - podSelector:
        matchLabels:
          app: web
---
# Flows of prod/web-0, prod/web-1
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: recommended-web
  namespace: prod
spec:
  podSelector:
    matchLabels:
      app: web
  policyTypes:
  - Ingress
  - Egress
  ingress:
  # 1 flows, 2 connections: 192.0.2.7 -> prod/web-0:8080 TCP
  - from:
    - ipBlock:
        cidr: 10.1.1.254/32
    ports:
    - port: 8080
      protocol: TCP
  # 1 flows, 2 connections: node node-2 -> prod/web-0:80 TCP
  - from:
    - ipBlock:
        cidr: 192.168.16.2/32
    ports:
    - port: 80
      protocol: TCP
  # 4 flows, 8 connections: dev/client -> prod/web-0:8080 TCP
  - from:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: dev
      podSelector:
        matchLabels:
          app: client
    ports:
    - port: 443
      protocol: TCP
    - port: 8080
      protocol: TCP
  egress:
  # 1 flows, 2 connections: prod/web-1 -> prod/db ICMP
  - to:
    - podSelector: {}
# not covered: prod/web-0 -> service prod/web:81 TCP: no flow names the endpoint behind the Service
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Many addresses with the same ports become every address of their family; those with other ports do not.
func TestManyAddresses(t *testing.T) {
	var list []flows.Flow
	for i := range mostAddresses + 1 {
		list = append(list, flow(web0, outside(fmt.Sprintf("192.0.2.%d", i+1)), "TCP", 443))
	}
	list = append(list, flow(web0, outside("2001:db8::1"), "TCP", 443), flow(web0, outside("198.51.100.1"), "TCP", 80))
	got, err := Policies(list, "prod").YAML()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got, "18 flows, 36 connections") || strings.Count(got, "cidr:") != 3 {
		t.Error(got)
	}
	for _, cidr := range []string{"cidr: 0.0.0.0/0", "cidr: 2001:db8::1/128", "cidr: 198.51.100.1/32"} {
		if strings.Count(got, cidr) != 1 {
			t.Errorf("%s is not once in\n%s", cidr, got)
		}
	}
}

func TestNoFlows(t *testing.T) {
	r := Policies([]flows.Flow{flow(client, outside("192.0.2.8"), "TCP", 80)}, "prod")
	if text, err := r.YAML(); err != nil || text != "" || len(r.Policies) != 0 {
		t.Errorf("%q %v", text, err)
	}
}
