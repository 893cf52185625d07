package trace

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// guarded has two nodes, a Service with two pods, and policies: web admits only clients, to port 80; locked may send to web
// only.
const guarded = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24, "fd00:1::/64"]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
spec: {podCIDR: 10.1.2.0/24, podCIDRs: [10.1.2.0/24, "fd00:2::/64"]}
status: {addresses: [{type: InternalIP, address: 192.168.16.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: prod, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}, {ip: "fd00:1::2"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-2, namespace: prod, labels: {app: web}}
spec: {nodeName: node-2, containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.2.2, podIPs: [{ip: 10.1.2.2}, {ip: "fd00:2::2"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: prod, labels: {app: client}}
spec: {nodeName: node-1, containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}, {ip: "fd00:1::3"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: locked, namespace: prod, labels: {app: locked}}
spec: {nodeName: node-2, containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.2.3, podIPs: [{ip: 10.1.2.3}, {ip: "fd00:2::3"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: prod, labels: {app: other}}
spec: {nodeName: node-1, containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.1.4, podIPs: [{ip: 10.1.1.4}, {ip: "fd00:1::4"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: prod}
spec: {type: NodePort, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], selector: {app: web}, ports: [{port: 8080, targetPort: 80, nodePort: 30080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: prod, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 80, protocol: TCP}]
endpoints:
- {addresses: [10.1.1.2], conditions: {ready: true}, nodeName: node-1, targetRef: {kind: Pod, namespace: prod, name: web-1}}
- {addresses: [10.1.2.2], conditions: {ready: true}, nodeName: node-2, targetRef: {kind: Pod, namespace: prod, name: web-2}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: prod}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: client}}}, {podSelector: {matchLabels: {app: locked}}}]
    ports: [{port: 80}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: locked, namespace: prod}
spec:
  podSelector: {matchLabels: {app: locked}}
  policyTypes: [Egress]
  egress:
  - to: [{podSelector: {matchLabels: {app: web}}}]
`

func objects(t testing.TB, yaml string) []event.Change {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
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

func cluster(t testing.TB, cfg Config, yaml string) *Cluster {
	t.Helper()
	c := NewCluster(cfg)
	t.Cleanup(c.Close)
	if err := c.Apply(context.Background(), objects(t, yaml)); err != nil {
		t.Fatal(err)
	}
	return c
}

// The answer names the policy and the rule that decided, with the objects' names.
func TestPolicyAnswers(t *testing.T) {
	c := cluster(t, Config{}, guarded)
	const (
		allowed  = "allowed by NetworkPolicy prod/web ingress rule 1"
		isolated = "denied: NetworkPolicy prod/web isolates prod/web-"
		leaves   = "allowed by NetworkPolicy prod/locked egress rule 1"
		stays    = "denied: NetworkPolicy prod/locked isolates prod/locked for egress and no rule allows it"
		free     = "delivered, and the reply arrives"
		ends     = " for ingress and no rule allows it"
	)
	for _, tc := range []struct {
		from, to, proto string
		verdict         Verdict
		reason          string
	}{
		{"pod:prod/client", "pod:prod/web-1:80", "TCP", Delivered, allowed},
		{"pod:prod/client", "pod:prod/web-2:80", "TCP", Delivered, allowed},
		{"pod:prod/client", "[fd00:2::2]:80", "TCP", Delivered, allowed},
		{"pod:prod/client", "pod:prod/web-1:81", "TCP", Dropped, isolated + "1" + ends},
		{"pod:prod/client", "pod:prod/web-1:80", "UDP", Dropped, isolated + "1" + ends},
		{"pod:prod/other", "pod:prod/web-2:80", "TCP", Dropped, isolated + "2" + ends},
		{"pod:prod/other", "[fd00:1::2]:80", "TCP", Dropped, isolated + "1" + ends},
		{"pod:prod/other", "pod:prod/client:80", "TCP", Delivered, free},
		{"pod:prod/web-1", "pod:prod/client:80", "TCP", Delivered, free},
		{"pod:prod/locked", "pod:prod/web-2:80", "TCP", Delivered, leaves + ", " + allowed},
		{"pod:prod/locked", "pod:prod/web-1:80", "TCP", Delivered, leaves + ", " + allowed},
		{"pod:prod/locked", "pod:prod/client:80", "TCP", Dropped, stays},
		{"pod:prod/locked", "8.8.8.8:53", "UDP", Dropped, stays},
		{"pod:prod/locked", "[2001:db8::1]:53", "UDP", Dropped, stays},
		{"pod:prod/client", "8.8.8.8:53", "UDP", Delivered, free},
		{"pod:prod/client", "service:prod/web:8080", "TCP", Delivered, "Service prod/web: 2 of 2 backends answer, " + allowed},
		{"pod:prod/other", "service:prod/web:8080", "TCP", Dropped, "Service prod/web: 2 of 2 backends fail: " + isolated},
		{"pod:prod/locked", "service:prod/web:8080", "TCP", Delivered, "Service prod/web: 2 of 2 backends answer, " + leaves + ", " + allowed},
		{"node:node-1", "pod:prod/web-1:81", "TCP", Delivered, free},
		{"node:node-2", "pod:prod/web-1:80", "TCP", Dropped, isolated + "1" + ends},
		{"external:198.51.100.7@node-1", "pod:prod/web-1:80", "TCP", Dropped, isolated + "1" + ends},
	} {
		a := c.Answer(Question{tc.from, tc.to, tc.proto})
		if a.Verdict != tc.verdict || !strings.HasPrefix(a.Reason, tc.reason) || a.Error != "" {
			t.Errorf("%s -> %s %s: %s %s %s\nwant %s %s", tc.from, tc.to, tc.proto, a.Verdict, a.Reason, a.Error, tc.verdict, tc.reason)
			for _, o := range a.Outcomes {
				t.Log(strings.Join(o.Hops, "\n"))
			}
		}
	}
}

// An answer passes because its request passed: the reason names no rule of the list that it meets.
func TestRepliesHaveNoSeparateReason(t *testing.T) {
	a := cluster(t, Config{ToReply: true}, guarded).Answer(Question{"pod:prod/client", "pod:prod/web-1:80", "TCP"})
	if len(a.Outcomes) != 1 {
		t.Fatal(a)
	}
	var judged []string
	for _, hop := range a.Outcomes[0].Hops {
		if strings.Contains(hop, "acl-plugin") {
			judged = append(judged, hop)
		}
	}
	named := func(s string) bool { return strings.Contains(s, "NetworkPolicy") || strings.Contains(s, "no policy") }
	if len(judged) != 3 || named(judged[0]) || !named(judged[1]) || named(judged[2]) { // the first is the client's source check
		t.Errorf("judged:\n%s", strings.Join(judged, "\n"))
	}
}

// Without policies the only lists are source checks, also after the last policy is deleted.
func TestPolicyIsAddedAndDeleted(t *testing.T) {
	plain, _, _ := strings.Cut(guarded, "---\napiVersion: networking")
	c := cluster(t, Config{}, plain)
	before := c.Sim("node-1").Dump()
	if strings.Contains(before, "reflect") || strings.Contains(before, " output ") {
		t.Fatalf("without policies:\n%s", before)
	}
	policies := slices.DeleteFunc(objects(t, guarded), func(ch event.Change) bool { return ch.Ref.Kind != model.Kind(model.KindNetworkPolicy) })
	if err := c.Apply(context.Background(), policies); err != nil {
		t.Fatal(err)
	}
	q := Question{"pod:prod/other", "pod:prod/web-1:80", "TCP"}
	if a := c.Answer(q); a.Verdict != Dropped {
		t.Errorf("with policies: %s %s", a.Verdict, a.Reason)
	}
	for i := range policies {
		policies[i].Object = nil
	}
	if err := c.Apply(context.Background(), policies); err != nil {
		t.Fatal(err)
	}
	if a := c.Answer(q); a.Verdict != Delivered {
		t.Errorf("without policies again: %s %s", a.Verdict, a.Reason)
	}
	if after := c.Sim("node-1").Dump(); after != before {
		t.Errorf("left behind:\n%s", after)
	}
}

func TestNoPolicies(t *testing.T) {
	var cfg Config
	cfg.Agent.Policies.Off = true
	c := cluster(t, cfg, guarded)
	if a := c.Answer(Question{"pod:prod/other", "pod:prod/web-1:80", "TCP"}); a.Verdict != Delivered {
		t.Errorf("switched off: %s %s", a.Verdict, a.Reason)
	}
}

const unborn = `
apiVersion: v1
kind: Pod
metadata: {name: web-9, namespace: prod, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: c}]}
`

// A pod has an interface before Kubernetes knows its address: nothing passes until the agent can apply its policies, and
// then the packets that they allow pass.
func TestNewPodIsIsolatedUntilItHasAnAddress(t *testing.T) {
	c := cluster(t, Config{}, guarded)
	c.Sim("node-1").AddInterface(sim.Interface{Name: "pod-prod/web-9", Tag: "prod/web-9"})
	list := func() string {
		t.Helper()
		var out []string
		for line := range strings.Lines(c.Sim("node-1").Dump()) {
			if strings.HasPrefix(line, "acl-list pod-prod/web-9 ") {
				out = append(out, line)
			}
		}
		return strings.Join(out, "")
	}
	apply := func(yaml string) {
		t.Helper()
		if err := c.Apply(context.Background(), objects(t, yaml)); err != nil {
			t.Fatal(err)
		}
	}
	apply(unborn)
	got := list()
	if strings.Count(got, "deny-all") != 2 {
		t.Errorf("without an address:\n%s", got)
	}
	apply(strings.Replace(unborn, "app: web", "app: free", 1))
	if got := list(); strings.Count(got, "ca1:d:all") != 2 {
		t.Errorf("without a policy, and without an address:\n%s", got)
	}
	apply(unborn)
	before := list()
	if before != got {
		t.Errorf("again without an address:\n%s\nbefore:\n%s", before, got)
	}
	apply(unborn + "status: {phase: Running, podIP: 10.1.1.9, podIPs: [{ip: 10.1.1.9}]}\n")
	if got := list(); got == before || !strings.Contains(got, "output") {
		t.Errorf("with an address:\n%s", got)
	}
}
