package realvpp

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/stats"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

const countedObjects = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}], phase: Running}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress:
  - {from: [{ipBlock: {cidr: 10.2.0.0/16, except: [10.2.9.0/24]}}], ports: [{port: 80}]}
  - {from: [{ipBlock: {cidr: 10.4.0.0/16}}]}
  egress:
  - {to: [{ipBlock: {cidr: 10.3.0.0/16}}]}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: guard}
spec:
  priority: 5
  subject: {namespaces: {}}
  egress:
  - {action: Pass, to: [{networks: [10.3.0.0/24]}]}
  - {action: Deny, to: [{networks: [10.3.0.0/16]}]}
`

// labWithWeb opens a VPP with the interface of the pod web at 10.1.1.2 on node-1, and writes objects into a folder of manifests.
func labWithWeb(t *testing.T, path, objects string, plugins ...string) (l *lab, web *model.Pod, dir string) {
	t.Helper()
	l, err := openLab(path, plugins...)
	t.Cleanup(l.close)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	web = podAt("web", "node-1", "10.1.1.2")
	if err := cni.New(l, "node-1").Apply(puts([]model.Object{nodeAt(1), web})); err != nil || l.err != nil {
		t.Fatal(err, l.err)
	}
	return l, web, dir
}

// runAgent runs an agent until the test ends.
func runAgent(t *testing.T, cfg agent.Config) *agent.Agent {
	t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return a
}

// TestVPPCounters: an agent shows what a real VPP counted for the rules of policies, also after VPP restarted.
func TestVPPCounters(t *testing.T) {
	l, web, dir := labWithWeb(t, realVPP(t, "reads VPP's stats segment"), countedObjects)
	a := runAgent(t, agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Socket: l.socket(), MaxBackoff: 100 * time.Millisecond}, Override: cni.Located(),
		Sources:  map[string]agent.Source{manifest.Name: manifest.New(manifest.Config{Paths: []string{dir}, Watch: true})},
		VPPAgent: vppagent.Config{Recheck: time.Second}, // VPP sends no event when an interface gets a name
		Policies: config.Policies{Counters: stats.Reader{Socket: filepath.Join(l.dir, "stats.sock")}},
	})
	for _, life := range []string{"first", "second"} {
		if life == "second" {
			if err := l.restart(); err != nil {
				t.Fatal(err)
			}
		}
		countedLife(t, l, a, web.ID, life)
	}
}

func countedLife(t *testing.T, l *lab, a *agent.Agent, web model.PodID, life string) {
	t.Helper()
	none := map[string]policy.Hits{
		"NetworkPolicy default/web ingress rule 1": {}, "NetworkPolicy default/web ingress rule 2": {}, "NetworkPolicy default/web egress rule 1": {},
		"AdminNetworkPolicy guard egress rule 2": {},
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got, why := countedRules(t, a, web)
		diff := cmp.Diff(none, got)
		if diff == "" && why == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s life: nothing was sent (-want +got):\n%s%s", life, diff, why)
		}
	}
	door := cni.PodInterface(web)
	for _, k := range []struct {
		in, from, to string
		n            int
	}{
		{"uplink", "10.2.0.7", "10.1.1.2:80", 3},
		{"uplink", "10.4.0.7", "10.1.1.2:81", 2},
		{"uplink", "10.2.9.7", "10.1.1.2:80", 5}, // excepted: the end of the tier
		{door, "10.1.1.2", "10.3.0.1:53", 4},     // passed on to the second tier's rule, and evaluated again where it leaves
		{door, "10.1.1.2", "10.3.7.1:53", 6},     // denied, each packet separately
	} {
		for n := range k.n {
			from := netip.AddrPortFrom(netip.MustParseAddr(k.from), uint16(2000+n))
			for range 2 { // the second packet is of the flow, if there is any
				if _, err := l.send(k.in, packet.NewTCP(from, netip.MustParseAddrPort(k.to))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	const in, out = 40, 40 + 14 // IP and TCP; where packets leave, they have their Ethernet header
	want := map[string]policy.Hits{
		"NetworkPolicy default/web ingress rule 1": {Packets: 3, Bytes: 3 * out}, "NetworkPolicy default/web ingress rule 2": {Packets: 2, Bytes: 2 * out},
		"NetworkPolicy default/web egress rule 1": {Packets: 8, Bytes: 4*in + 4*out}, "AdminNetworkPolicy guard egress rule 2": {Packets: 12, Bytes: 12 * in},
	}
	got, why := countedRules(t, a, web)
	if diff := cmp.Diff(want, got); diff != "" || why != "" {
		t.Errorf("%s life (-want +got):\n%s%s", life, diff, why)
	}
}

// countedRules is what the agent shows for the pod's rules.
func countedRules(t *testing.T, a *agent.Agent, web model.PodID) (map[string]policy.Hits, string) {
	t.Helper()
	d, err := a.Policy(t.Context(), web)
	if err != nil {
		t.Fatal(err)
	}
	if d == nil {
		return nil, "the pod is not known yet"
	}
	out := map[string]policy.Hits{}
	for _, tiers := range [][]policy.Tier{d.Ingress, d.Egress} {
		for _, tier := range tiers {
			for _, p := range tier.Policies {
				for _, r := range p.Rules {
					if r.Hits != nil {
						out[p.Object+" "+r.Name] = *r.Hits
					}
				}
			}
		}
	}
	return out, d.Uncounted
}
