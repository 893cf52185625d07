package class

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// pods is two pods; a test adds to the second.
const pods = `
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop, labels: {app: web, pod: one}}
spec: {nodeName: node-1, containers: [{name: c, ports: [{name: http, containerPort: 8080}]}]}
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: shop, labels: {app: web, pod: two}}
spec: {nodeName: node-2, containers: [{name: c, ports: [{name: http, containerPort: PORT}]}]}
status: {podIP: ADDRESS, podIPs: [{ip: ADDRESS}]}
`

func policy(spec string) string {
	return "---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: p}\nspec: " + spec + "\n"
}

func load(t *testing.T, text string) []model.Object {
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

func TestPodsThatAPolicyDistinguishesAreOfTwoClasses(t *testing.T) {
	const service = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s-1, namespace: shop, labels: {kubernetes.io/service-name: s}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.1.1.2]}]
`
	const set = "---\napiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: one, labels: {set: one}}\nspec: {nets: [10.1.1.2/32]}\n"
	for _, tc := range []struct {
		what, address, port, more string
		same                      bool
	}{
		{"no policy", "10.9.9.9", "9", "", true},
		{"a selector selects both", "10.9.9.9", "9", policy("{selector: app == 'web'}"), true},
		{"a selector selects one", "10.9.9.9", "9", policy("{selector: pod == 'one'}"), false},
		{"a peer is one", "10.9.9.9", "9", policy("{ingress: [{action: Allow, source: {selector: pod == 'one'}}]}"), false},
		{"a peer of egress is one", "10.9.9.9", "9", policy("{egress: [{action: Allow, destination: {selector: pod == 'one'}}]}"), false},
		{"a peer is not one", "10.9.9.9", "9", policy("{ingress: [{action: Allow, source: {notSelector: pod == 'one'}}]}"), false},
		{"a network has both", "10.1.1.3", "9", policy("{ingress: [{action: Allow, source: {nets: [10.1.1.0/24]}}]}"), true},
		{"a network begins between", "10.1.1.3", "9", policy("{ingress: [{action: Allow, source: {nets: [10.1.1.3/32]}}]}"), false},
		{"a network ends between", "10.1.1.3", "9", policy("{ingress: [{action: Allow, source: {nets: [10.1.1.2/32]}}]}"), false},
		{"a network begins and ends between", "10.1.1.9", "9", policy("{ingress: [{action: Allow, source: {nets: [10.1.1.4/30]}}]}"), false}, // not needed, and not wrong
		{"an exception has one", "10.1.1.4", "9", policy("{ingress: [{action: Allow, source: {nets: [10.1.1.0/24], notNets: [10.1.1.4/30]}}]}"), false},
		{"a network set has one", "10.1.1.3", "9", policy("{ingress: [{action: Allow, source: {selector: set == 'one'}}]}") + set, false},
		{"a rule names a port", "10.9.9.9", "9", policy("{ingress: [{action: Allow, protocol: TCP, destination: {ports: [http]}}]}"), false},
		{"a rule names a port that both have", "10.9.9.9", "8080", policy("{ingress: [{action: Allow, protocol: TCP, destination: {ports: [http]}}]}"), true},
		{"a rule names another port", "10.9.9.9", "9", policy("{ingress: [{action: Allow, protocol: TCP, destination: {ports: [metrics]}}]}"), true},
		{"a rule denies all ports but one", "10.9.9.9", "9", policy("{ingress: [{action: Deny, protocol: TCP, destination: {notPorts: [http]}}]}"), false},
		{"a rule names a Service", "10.9.9.9", "9", policy("{egress: [{action: Allow, destination: {services: {name: s, namespace: shop}}}]}") + service, false},
		{"no rule names the Service", "10.9.9.9", "9", service, true},
		{"another family", "fd00::2", "8080", "", false},
	} {
		objects := load(t, strings.NewReplacer("ADDRESS", `"`+tc.address+`"`, "PORT", tc.port).Replace(pods)+tc.more)
		m := Members(meaning.Read(space.New(), objects))
		if len(m) != 2 || (m[0].Key == m[1].Key) != tc.same {
			t.Errorf("%s: keys %q and %q, want the same: %v", tc.what, m[0].Key, m[1].Key, tc.same)
		}
	}
}

// TestAddressesOfAClassCorrespond gives two pods of a class their addresses in different orders.
func TestAddressesOfAClassCorrespond(t *testing.T) {
	const two = `
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
spec: {nodeName: node-1}
status: {podIP: 10.1.1.9, podIPs: [{ip: 10.1.1.9}, {ip: "fd00::2"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: shop}
spec: {nodeName: node-1}
status: {podIP: "fd00::1", podIPs: [{ip: "fd00::1"}, {ip: 10.1.1.3}]}
`
	m := Members(meaning.Read(space.New(), load(t, two)))
	if m[0].Key != m[1].Key || !m[0].Addrs[0].Is4() || !m[1].Addrs[0].Is4() {
		t.Errorf("%v and %v", m[0].Addrs, m[1].Addrs)
	}
}

func TestPodsWithoutAddressGetAPlaceholder(t *testing.T) {
	const some = `
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
spec: {containers: [{name: c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: shop}
spec: {nodeName: node-1, containers: [{name: c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: shop}
spec: {nodeName: node-1, hostNetwork: true, containers: [{name: c}]}
`
	const six = "---\napiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nspec: {podCIDR: fd00:1::/64, podCIDRs: [fd00:1::/64]}\n"
	for text, want := range map[string]int{some: 2, some + six: 1} {
		seen := map[string]bool{}
		c := meaning.Read(space.New(), Complete(load(t, text)))
		for _, p := range c.Pods {
			if len(p.IPs) != want {
				t.Errorf("%s has %v, want %d placeholders", p.ID, p.IPs, want)
			}
			for _, a := range p.IPs {
				if seen[a.String()] || !IsPlaceholder(a) || want == 1 && a.Is4() {
					t.Errorf("%s has %s", p.ID, a)
				}
				seen[a.String()] = true
			}
		}
		if len(c.Pods) != 2 || Scheduled(c.Pods[0].Pod) || !Scheduled(c.Pods[1].Pod) {
			t.Errorf("pods %v", c.Pods)
		}
	}
}

func TestWorkload(t *testing.T) {
	for _, tc := range []struct {
		name   string
		labels map[string]string
		want   string
	}{
		{"web-7f9c-abcde", map[string]string{"pod-template-hash": "7f9c"}, "web"},
		{"db-0", nil, "db"},
		{"agent-x7k2p", map[string]string{"controller-revision-hash": "5"}, "agent"},
		{"backup-28-xyz", map[string]string{"batch.kubernetes.io/job-name": "backup-28"}, "backup-28"},
		{"client", nil, "client"},
		{"my-client", nil, "my-client"},
	} {
		if got := Workload(&model.Pod{ID: model.PodID{Name: tc.name}, Labels: tc.labels}); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
