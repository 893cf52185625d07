package intent

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/intent/ask"
)

func load(t testing.TB, text string) []model.Object {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := manifest.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []model.Object
	for _, ch := range changes {
		if ch.Err != nil {
			t.Fatal(ch.Err)
		}
		list = append(list, ch.Object)
	}
	return list
}

const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {stage: prod}}
---
apiVersion: v1
kind: Namespace
metadata: {name: dev, labels: {stage: dev}}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16]}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: c}]}
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: c}]}
status: {podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db-0, namespace: shop, labels: {app: db}}
spec: {nodeName: node-1, containers: [{name: c, ports: [{name: sql, containerPort: 5432}]}]}
status: {podIP: 10.1.1.4, podIPs: [{ip: 10.1.1.4}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: dev}
spec: {nodeName: node-1, containers: [{name: c}]}
status: {podIP: 10.1.1.5, podIPs: [{ip: 10.1.1.5}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], selector: {app: db}, ports: [{name: sql, port: 15432, targetPort: sql}, {name: admin, port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: sql, port: 5432}, {name: admin, port: 8080}]
endpoints: [{addresses: [10.1.1.4]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 5432}]
  - from: [{ipBlock: {cidr: 10.96.0.0/16}}]
`

func TestSides(t *testing.T) {
	c := Read(load(t, shop))
	for _, tc := range []struct {
		kind    ask.Kind
		text    string
		verdict Verdict
		says    string // part of the packet, of a reason, or of why it is not decided
	}{
		{ask.Never, "ns:dev -> ns:shop,app=db", Holds, ""},
		{ask.Never, "namespaces:stage=dev -> pods:app=db", Holds, ""},
		{ask.Never, "namespaces:stage!=prod -> pods:app=db", Holds, ""},
		{ask.Never, "ns:dev -> ns:shop", Violated, "tcp 10.1.1.5:40000 -> 10.1.1.2:80 SYN"},
		{ask.Never, "ns:dev -> ns:shop", Violated, "allowed: no policy selects shop/web-0 for ingress"},
		{ask.Always, "workload:shop/web -> service:shop/db:15432", Holds, ""},
		{ask.Always, "workload:shop/web -> service:shop/db:15432/TCP", Holds, ""},
		{ask.Always, "workload:shop/web -> service:shop/db", Violated, "tcp 10.1.1.2:40000 -> 10.1.1.4:8080 SYN"},
		{ask.Always, "workload:shop/web -> ns:shop,app=db:5432", Holds, ""},
		{ask.Always, "workload:shop/web -> ns:shop,app=db:5432-5433/TCP", Violated, "-> 10.1.1.4:5433"},
		{ask.Always, "workload:shop/web -> ns:shop,app=db:UDP", Violated, "udp 10.1.1.2:40000 -> 10.1.1.4:80"},
		{ask.Always, "workload:shop/web -> ns:shop,app=db:ICMP", Violated, "icmp 10.1.1.2 -> 10.1.1.4 type 8 code 0"},
		{ask.Never, "workload:shop/web -> ns:shop,app=db:ICMP", Holds, ""},
		{ask.Never, "pod:shop/web-1 -> pod:shop/db-0", Violated, "tcp 10.1.1.3:40000 -> 10.1.1.4:5432 SYN"},
		{ask.Always, "pod:shop/web-1 -> pod:shop/web-0", Holds, ""},
		{ask.Never, "workload:shop/web -> pod:shop/web-0", Violated, "tcp 10.1.1.3:40000 -> 10.1.1.2:80 SYN"},
		{ask.Never, "pod:shop/web-0 -> pod:shop/web-0", Undecided, "are one pod"},
		{ask.Never, "outside -> ns:shop,app=db", Holds, ""}, // addresses of Services are not outside
		{ask.Never, "cidr:10.96.0.0/16 -> ns:shop,app=db", Violated, "allowed by NetworkPolicy shop/db ingress rule 2"},
		{ask.Never, "cidr:10.1.1.0/29 -> ns:shop,app=db:5432", Violated, "tcp 10.1.1.2:40000 -> 10.1.1.4:5432 SYN"},
		{ask.Never, "cidr:10.1.1.4/30 -> ns:shop,app=db:5432", Holds, ""},
		{ask.Never, "cidr:192.168.16.1/32 -> ns:shop", Undecided, "selects no pod and no address"}, // a node
		{ask.Never, "ns:shop -> cidr:192.168.16.1/32", Violated, "-> 192.168.16.1:80"},
		{ask.Never, "any -> ns:shop,app=db:5432", Violated, "tcp 10.1.1.2:40000"},
		{ask.Always, "any -> ns:dev", Holds, ""},
		{ask.Always, "ns:dev -> outside", Holds, ""},
		{ask.Always, "outside -> cidr:203.0.113.0/24", Undecided, "neither has a pod"},
		{ask.Never, "ns:dve -> ns:shop", Undecided, "ns:dve selects no pod"},
		{ask.Never, "ns:dev -> service:shop/dbx", Undecided, "the manifests have no Service shop/dbx"},
		{ask.Never, "ns:dev -> service:shop/db:53/UDP", Undecided, "Service shop/db has no port of service:shop/db:53/UDP"},
		{ask.Never, "service:shop/db -> ns:dev", Violated, "tcp 10.1.1.4:40000 -> 10.1.1.5:80 SYN"},
		{ask.Never, "cidr:2001:db8::/32 -> ns:dev", Undecided, "no addresses of one family"},
	} {
		a, err := ask.Parse(tc.kind, tc.text)
		if err != nil {
			t.Fatal(err)
		}
		r := c.Check([]ask.Assertion{a}).Results[0]
		said := r.Why
		if r.Example != nil {
			said = r.Example.Packet + " " + r.Example.Egress + " " + r.Example.Ingress
		}
		if r.Verdict != tc.verdict || !strings.Contains(said, tc.says) {
			t.Errorf("%s %s: %s: %s; want %s: %s", tc.kind, tc.text, r.Verdict, said, tc.verdict, tc.says)
		}
	}
}

func TestReportIsTheWorstVerdict(t *testing.T) {
	c := Read(load(t, shop))
	for _, tc := range []struct {
		texts []string
		want  Verdict
	}{
		{nil, Holds},
		{[]string{"ns:dev -> ns:shop,app=db"}, Holds},
		{[]string{"ns:dve -> ns:shop", "ns:dev -> ns:shop,app=db"}, Undecided},
		{[]string{"ns:dev -> ns:shop", "ns:dve -> ns:shop", "ns:dev -> ns:shop,app=db"}, Violated},
	} {
		var list []ask.Assertion
		for _, text := range tc.texts {
			a, err := ask.Parse(ask.Never, text)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, a)
		}
		if r := c.Check(list); r.Verdict != tc.want || len(r.Results) != len(list) {
			t.Errorf("%v: %s, %d results, want %s", tc.texts, r.Verdict, len(r.Results), tc.want)
		}
	}
}

// TestPortsOfAServiceSelectEndpoints asks first about a port that has no endpoint in common with the other.
func TestPortsOfAServiceSelectEndpoints(t *testing.T) {
	c := Read(load(t, shop+`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-2, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: admin, port: 9000}]
endpoints: [{addresses: [10.1.1.3]}]
`))
	for _, tc := range []struct {
		text string
		want Verdict
	}{
		{"ns:dev -> service:shop/db:15432", Holds},
		{"ns:dev -> service:shop/db:80", Violated},
		{"ns:dev -> service:shop/db", Violated},
	} {
		a, err := ask.Parse(ask.Never, tc.text)
		if err != nil {
			t.Fatal(err)
		}
		if r := c.Check([]ask.Assertion{a}).Results[0]; r.Verdict != tc.want {
			t.Errorf("never %s: %s, want %s", tc.text, r.Verdict, tc.want)
		}
	}
}

// TestWhatCannotBeEvaluatedIsNotDecided has a rule about HTTP, which meaning does not evaluate, and a host endpoint that may deny.
func TestWhatCannotBeEvaluatedIsNotDecided(t *testing.T) {
	check := func(objects []model.Object, kind ask.Kind, text string) Result {
		a, err := ask.Parse(kind, text)
		if err != nil {
			t.Fatal(err)
		}
		return Read(objects).Check([]ask.Assertion{a}).Results[0]
	}
	objects := load(t, shop)
	for _, o := range objects {
		if p, ok := o.(*model.Policy); ok {
			p.InboundRules[0].HTTP = &model.HTTPMatch{Methods: []string{"GET"}}
		}
	}
	if r := check(objects, ask.Never, "ns:dev -> ns:shop,app=db"); r.Verdict != Undecided || !strings.Contains(r.Why, "HTTP") {
		t.Errorf("a rule about HTTP: %+v", r)
	}
	if r := check(objects, ask.Never, "ns:shop,app=db -> outside"); r.Verdict != Violated {
		t.Errorf("a rule about HTTP of another direction: %+v", r)
	}
	host := load(t, shop+`---
apiVersion: projectcalico.org/v3
kind: HostEndpoint
metadata: {name: up, labels: {host: up}}
spec: {node: node-1, interfaceName: eth0, expectedIPs: [192.168.16.1]}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: forwarded}
spec: {selector: host == 'up', applyOnForward: true, ingress: [{action: Deny}]}
`)
	if r := check(host, ask.Always, "ns:dev -> outside"); r.Verdict != Undecided || !strings.Contains(r.Why, "HostEndpoint") {
		t.Errorf("always, beside a host endpoint: %+v", r)
	}
	if r := check(host, ask.Never, "ns:dev -> ns:shop,app=db"); r.Verdict != Holds {
		t.Errorf("never, beside a host endpoint: %+v", r)
	}
}

// TestPodsOfManifestsWithoutStatus asks about pods that nothing has deployed.
func TestPodsOfManifestsWithoutStatus(t *testing.T) {
	var lines []string
	for line := range strings.Lines(shop) {
		if !strings.HasPrefix(line, "status: {podIP") {
			lines = append(lines, line)
		}
	}
	c := Read(load(t, strings.Join(lines, "")))
	for text, want := range map[string]Verdict{"ns:dev -> ns:shop,app=db": Holds, "ns:dev -> ns:shop": Violated, "ns:shop,app=web -> ns:shop,app=db:5432": Violated} {
		a, err := ask.Parse(ask.Never, text)
		if err != nil {
			t.Fatal(err)
		}
		r := c.Check([]ask.Assertion{a}).Results[0]
		if r.Verdict != want {
			t.Errorf("never %s: %s, want %s", text, r.Verdict, want)
		}
		if r.Example != nil && r.Example.Trace != "" {
			t.Errorf("never %s: trace cannot answer %s", text, r.Example.Trace)
		}
	}
}

func TestNewConnections(t *testing.T) {
	c := Read(nil)
	for text, want := range map[string]bool{
		"tcp SYN": true, "tcp SYN ACK": false, "tcp ACK": false, "udp": true, "sctp": true, "47": true,
		"icmp 8": true, "icmp 0": false, "icmp 3": false, "icmp 11": false, "icmp 12": false, "icmp 13": true,
		"icmpv6 128": true, "icmpv6 129": false, "icmpv6 1": false, "icmpv6 4": false, "icmpv6 133": false, "icmpv6 137": false, "icmpv6 138": true,
	} {
		h := headerOf(text)
		if got := c.Space.Contains(c.Fresh(), h); got != want {
			t.Errorf("%s: %v, want %v", h, got, want)
		}
	}
}

// headerOf reads "tcp SYN", "icmp 8", "47".
func headerOf(text string) space.Header {
	f := strings.Fields(text)
	h := space.Header{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), SrcPort: 5, DstPort: 6}
	switch f[0] {
	case "tcp":
		h.Protocol = space.TCP
		for _, flag := range f[1:] {
			h.Flags |= map[string]uint8{"SYN": space.SYN, "ACK": space.ACK}[flag]
		}
	case "udp":
		h.Protocol = space.UDP
	case "sctp":
		h.Protocol = space.SCTP
	case "icmp", "icmpv6":
		n, _ := strconv.Atoi(f[1])
		h.Protocol, h.SrcPort, h.DstPort = space.ICMP, uint16(n), 0
		if f[0] == "icmpv6" {
			h.Protocol, h.Src, h.Dst = space.ICMPv6, netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
		}
	default:
		n, _ := strconv.Atoi(f[0])
		h.Protocol, h.SrcPort, h.DstPort = uint8(n), 0, 0
	}
	return h
}
