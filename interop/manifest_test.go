package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// manifests is a folder of Kubernetes objects that something follows.
type manifests struct {
	t   *testing.T
	dir string
}

func newManifests(t *testing.T) *manifests { return &manifests{t, t.TempDir()} }

// write replaces a file at once: a reader never sees half of it.
func (m *manifests) write(name, yaml string) {
	m.t.Helper()
	tmp := filepath.Join(m.dir, "."+name)
	if err := os.WriteFile(tmp, []byte(yaml), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(m.dir, name+".yaml")); err != nil {
		m.t.Fatal(err)
	}
}

func (m *manifests) remove(name string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.dir, name+".yaml")); err != nil {
		m.t.Fatal(err)
	}
}

// clusterYAML is a node with three pods.
var clusterYAML = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.0.1}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: prod, labels: {team: a}}
` + podYAML("web", "10.1.1.2") + podYAML("client", "10.1.1.3") + podYAML("other", "10.1.1.4")

func podYAML(name, addr string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: prod, labels: {app: %[1]s}}
spec: {nodeName: node-1, serviceAccountName: default, containers: [{name: main, image: x}]}
status: {phase: Running, podIP: %s, podIPs: [{ip: %[2]s}]}
`, name, addr)
}

// policyYAML lets one app dial web's port 80.
func policyYAML(client string) string {
	return fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: prod}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: %s}}}], ports: [{protocol: TCP, port: 80}]}]
`, client)
}
