package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// morePolicies are policies of all kinds for the guestbook, except host endpoints: an agent without Felix derives the routes
// to other nodes' pods from Nodes, and Felix reports them only with a pool that has a tunnel.
const morePolicies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: frontend, namespace: guestbook}
spec:
  podSelector: {matchLabels: {app: guestbook}}
  policyTypes: [Ingress, Egress]
  ingress:
  - {from: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8, except: [10.1.2.0/24]}}], ports: [{port: 80, endPort: 90}, {port: http}]}
  egress:
  - {to: [{namespaceSelector: {}}], ports: [{protocol: UDP, port: 53}]}
  - {to: [{podSelector: {matchLabels: {app: redis}}}]}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: first}
spec:
  priority: 5
  subject: {namespaces: {}}
  ingress:
  - {name: dns, action: Deny, from: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: none}}}]}
  - {name: rest, action: Pass, from: [{namespaces: {}}]}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec:
  subject: {namespaces: {}}
  egress:
  - {name: telnet, action: Deny, to: [{namespaces: {}}], ports: [{portNumber: {protocol: TCP, port: 23}}]}
---
apiVersion: projectcalico.org/v3
kind: Tier
metadata: {name: security}
spec: {order: 50, defaultAction: Pass}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkSet
metadata: {name: bad, labels: {bad: "true"}}
spec: {nets: [198.51.100.0/24, 203.0.113.7/32, "2001:db8::/32"]}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: security.bad}
spec:
  tier: security
  order: 1
  selector: all()
  types: [Ingress, Egress]
  ingress: [{action: Deny, source: {selector: bad == 'true'}}, {action: Pass}]
  egress: [{action: Deny, destination: {selector: bad == 'true'}, protocol: TCP}, {action: Pass}]
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: default.admin, namespace: guestbook}
spec:
  tier: default
  order: 20
  selector: app == 'client'
  types: [Ingress, Egress]
  ingress: [{action: Allow, protocol: ICMP, icmp: {type: 8}}, {action: Deny, protocol: TCP, destination: {notPorts: [22, "8000:9000"]}}]
  egress: [{action: Allow, protocol: TCP, destination: {services: {name: redis-leader, namespace: guestbook}}}, {action: Allow, notProtocol: TCP}]
`

// TestFelixOrNot: an agent of ours alone, and one that is the driver of a real Felix behind our fan-out, make the same of
// the same objects.
func TestFelixOrNot(t *testing.T) {
	objects := newManifests(t)
	files, err := filepath.Glob("../examples/guestbook/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects.write(strings.TrimSuffix(filepath.Base(file), ".yaml"), string(content))
	}
	objects.write("more", morePolicies)
	changes, err := manifest.Load(objects.dir)
	if err != nil {
		t.Fatal(err)
	}
	alone, under := newBare(t), newBare(t)
	for _, v := range []*simulated{alone, under} {
		if err := v.cni.Apply(changes); err != nil {
			t.Fatal(err)
		}
	}
	agent, socket := product(t), filepath.Join(t.TempDir(), "agent.sock")
	start(t, "contiv-agent run", exec.Command(agent, "run", "--vpp-socket", alone.socket, "--manifests", objects.dir, "--node", node1,
		"--uplink", cni.Uplink, "--overlay", cni.Overlay, "--host-interface", cni.Host, "--host-address", cni.HostLink.String(), "--listen", "", "--journal", "",
		"--stats-socket", "", "--status-socket", socket))
	s := newStoryOf(t, under, fmt.Sprintf("services: {manifests: [%s]}\n", objects.dir))
	s.addr = fmt.Sprint("127.0.0.1:", freePort(t))
	start(t, "contiv-agent fanout", exec.Command(agent, "fanout", "--listen", s.addr, "--manifests", objects.dir, "--metrics", "", "--drain", "0s"))
	s.run()
	same := func(what string) {
		t.Helper()
		for _, at := range []string{socket, s.socket} {
			eventually(t, what+": the agent at "+at+" is done", func() error {
				out, err := exec.Command(agent, "status", "--status-socket", at, "-o", "json").Output()
				var st struct{ InSync, Ready bool }
				if bad := json.Unmarshal(out, &st); bad != nil || !st.InSync || !st.Ready {
					return errors.Join(err, bad, fmt.Errorf("%s", out))
				}
				return nil
			})
		}
		eventually(t, what, func() error {
			if diff := cmp.Diff(alone.Dump(), under.Dump()); diff != "" {
				return fmt.Errorf("(-alone +under Felix):\n%s", diff)
			}
			return nil
		})
	}
	same("the guestbook")
	objects.remove("more")
	same("without some policies")
	objects.write("more", morePolicies)
	same("with them again")
	if !strings.Contains(alone.Dump(), "acl-list") {
		t.Errorf("no policy is enforced:\n%s", alone.Dump())
	}
}
