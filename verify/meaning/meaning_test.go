package meaning

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/space"
)

const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: prod, labels: {team: a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: dev, labels: {team: b}}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: prod, labels: {app: web}}
spec:
  nodeName: node-1
  containers: [{name: c, ports: [{name: http, containerPort: 8080}]}]
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}, {ip: "fd00::2"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: dev}
spec: {nodeName: node-1}
status: {podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}, {ip: "fd00::3"}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: prod}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{namespaceSelector: {matchLabels: {team: b}}}]
    ports: [{port: http}]
  - from: [{ipBlock: {cidr: 198.51.100.0/24, except: [198.51.100.8/29]}}]
    ports: [{port: 9000, endPort: 9010}]
`

const admin = `
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: admin}
spec:
  priority: 5
  subject: {namespaces: {matchLabels: {team: a}}}
  ingress:
  - {name: ssh, action: Allow, from: [{namespaces: {}}], ports: [{portNumber: {protocol: TCP, port: 22}}]}
  - {name: pass, action: Pass, from: [{namespaces: {matchLabels: {team: b}}}], ports: [{portNumber: {protocol: TCP, port: 8080}}]}
  - {name: rest, action: Deny, from: [{namespaces: {}}]}
`

const staged = `
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: try, namespace: dev, annotations: {contiv-agent.io/staged: "true"}}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
---
apiVersion: projectcalico.org/v3
kind: StagedGlobalNetworkPolicy
metadata: {name: try}
spec: {egress: [{action: Deny}]}
`

const baseline = `
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec:
  subject: {namespaces: {matchLabels: {team: b}}}
  egress:
  - {action: Deny, to: [{networks: [203.0.113.0/24]}]}
`

func read(t *testing.T, text string) *Cluster {
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
	return Read(space.New(), list)
}

func (c *Cluster) podNamed(name string) *Pod {
	for _, p := range c.Pods {
		if p.ID.Name == name {
			return p
		}
	}
	return nil
}

func TestMeaning(t *testing.T) {
	for _, tc := range []struct {
		text, pod string
		egress    bool
		packet    string // source, destination, port of TCP
		allowed   bool
		reason    string
	}{
		{objects, "web", false, "10.1.1.3 10.1.1.2 8080", true, "allowed by NetworkPolicy prod/web ingress rule 1"},
		{objects, "web", false, "fd00::3 fd00::2 8080", true, "allowed by NetworkPolicy prod/web ingress rule 1"},
		{objects, "web", false, "10.1.1.3 10.1.1.2 8081", false, "denied: no rule of NetworkPolicy prod/web allows it"},
		{objects, "web", false, "198.51.100.7 10.1.1.2 9010", true, "allowed by NetworkPolicy prod/web ingress rule 2"},
		{objects, "web", false, "198.51.100.7 10.1.1.2 9011", false, "denied: no rule"},
		{objects, "web", false, "198.51.100.9 10.1.1.2 9000", false, "denied: no rule"},
		{objects, "web", true, "10.1.1.2 203.0.113.1 80", true, "allowed: no policy selects prod/web for egress"},
		{objects + admin, "web", false, "10.1.1.3 10.1.1.2 22", true, "allowed by AdminNetworkPolicy admin ingress rule 1"},
		{objects + admin, "web", false, "10.1.1.3 10.1.1.2 8080", true, "allowed by NetworkPolicy prod/web ingress rule 1"},
		{objects + admin, "web", false, "10.1.1.3 10.1.1.2 9000", false, "denied by AdminNetworkPolicy admin ingress rule 3"},
		{objects + admin, "web", false, "198.51.100.7 10.1.1.2 9000", true, "allowed by NetworkPolicy prod/web ingress rule 2"},
		{objects + staged, "client", true, "10.1.1.3 203.0.113.1 80", true, "allowed: no policy selects dev/client for egress"},
		{objects + baseline, "client", true, "10.1.1.3 203.0.113.1 80", false, "denied by BaselineAdminNetworkPolicy default egress rule 1"},
		{objects + baseline, "client", true, "10.1.1.3 203.0.114.1 80", true, "allowed: no policy of dev/client decides for egress"},
	} {
		c := read(t, tc.text)
		f := strings.Fields(tc.packet)
		h := space.Header{Src: netip.MustParseAddr(f[0]), Dst: netip.MustParseAddr(f[1]), Protocol: space.TCP, SrcPort: 40000, Flags: space.SYN}
		h.DstPort = netip.MustParseAddrPort("[::]:" + f[2]).Port()
		p := c.podNamed(tc.pod)
		set, doubts := c.Allowed(p, tc.egress)
		if got := c.space.Contains(set, h); got != tc.allowed || len(doubts) > 0 {
			t.Errorf("%s: allowed %v, want %v; doubts %v", h, got, tc.allowed, doubts)
		}
		if got := c.Reason(p, tc.egress, h); !strings.HasPrefix(got, tc.reason) {
			t.Errorf("%s: %q, want %q", h, got, tc.reason)
		}
	}
}

func TestRulesThatCannotBeEvaluatedAreDoubts(t *testing.T) {
	c := read(t, objects)
	c.Policies[0].InboundRules[0].HTTP = &model.HTTPMatch{Methods: []string{"GET"}}
	if _, doubts := c.Allowed(c.podNamed("web"), false); len(doubts) != 1 || !strings.Contains(doubts[0], "HTTP") {
		t.Errorf("doubts of ingress: %v", doubts)
	}
	if _, doubts := c.Allowed(c.podNamed("client"), false); len(doubts) != 0 {
		t.Errorf("doubts of a pod without such a policy: %v", doubts)
	}
}
