//go:build felix

package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// felix is that of Calico v3.31, which make interop has built; or it is built, with a Go it is right with.
func felix(t testing.TB) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "contiv-agent", "interop", "calico-felix")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	if err := goBuild(context.Background(), os.Stdout, "../peers", file, "github.com/projectcalico/calico/felix/cmd/calico-felix", "-ldflags=-s -w",
		"GOTOOLCHAIN=go1.25.4", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -buildvcs=false", "CGO_ENABLED=0", "GONOSUMDB=github.com/projectcalico/*"); err != nil {
		t.Fatal(err)
	}
	return file
}

// besides is what a Calico has brought before: kinds that Felix asks for beside those our programs read, its word that the datastore is
// ready, and its role. The latter is as large as it likes.
const besides = `
apiVersion: crd.projectcalico.org/v1
kind: ClusterInformation
metadata: {name: default}
spec: {clusterGUID: 0123456789abcdef0123456789abcdef, clusterType: k8s, datastoreReady: true}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: calico-node}
rules:
  - apiGroups: ["", crd.projectcalico.org, policy.networking.k8s.io, networking.k8s.io, discovery.k8s.io]
    resources: ["*"]
    verbs: [get, list, watch]
`

// TestFelix runs the real Felix as the folder felix-driver has it: its init container's command, its environment, its ServiceAccount.
func TestFelix(t *testing.T) {
	repeat(t)
	program := felix(t)
	d := &deployed{cluster: newCluster(t)}
	d.serveGroup(groupPolicy)
	d.serveGroup(groupCalicoCRD, "FelixConfiguration", "ClusterInformation")
	d.namespaces()
	if _, err := d.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodes[0]}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all := kustomize(t, "felix-driver")
	d.keep(all)
	d.write("besides.yaml", besides)
	d.kubectl(nil, "apply", "--server-side", "-f", d.path("besides.yaml"))
	d.become("contiv-agent")

	dir, listen := shortDir(t), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	here := func(text string) string { return strings.ReplaceAll(text, "/driver", dir) }
	pod := pods(t, all)["DaemonSet contiv-vswitch"].Spec
	var install []string
	for _, arg := range pod.InitContainers[0].Args {
		install = append(install, here(arg))
	}
	if out, err := exec.Command(built.agent, install...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cm, _ := find[corev1.ConfigMap](t, all, "ConfigMap", "contiv-felix-driver")
	d.write("felix-driver.yaml", cm.Data["felix-driver.yaml"])
	socket := filepath.Join(dir, "status.sock")
	cmd := exec.Command(program, "-c", d.path("no-such.cfg"))
	cmd.Env = []string{
		"KUBECONFIG=" + d.path("contiv-agent.kubeconfig"), "CONTIV_FELIX_DRIVER_CONFIG=" + d.path("felix-driver.yaml"), "CONTIV_FELIX_DRIVER_SIM=1",
		"CONTIV_FELIX_DRIVER_LISTEN=" + listen, "CONTIV_FELIX_DRIVER_STATUS_SOCKET=" + socket, "CONTIV_FELIX_DRIVER_JOURNAL=none",
		"FELIX_HEALTHPORT=" + fmt.Sprint(freePort(t)),
	}
	health := "http://localhost:" + strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], "FELIX_HEALTHPORT=")
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "felix" })
	for _, e := range pod.Containers[i].Env {
		if e.ValueFrom != nil { // the name of the node
			e.Value = nodes[0]
		}
		if e.Name == "FELIX_DATAPLANEDRIVER" {
			e.Value = here(e.Value)
		}
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	p := start(t, "calico-felix", cmd)
	for _, url := range []string{health + pod.Containers[i].LivenessProbe.HTTPGet.Path, "http://" + listen + pod.Containers[i].ReadinessProbe.HTTPGet.Path} {
		eventually(t, url, func() error { _, err := get(url); return err }, p)
	}
	out, err := exec.Command(filepath.Join(dir, "contiv-agent"), "status", "--status-socket", socket).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "felix ") || !strings.Contains(string(out), "kube") {
		t.Errorf("status: %v\n%s", err, out)
	}
	for _, words := range []string{"forbidden", "no right to"} {
		if p.wrote(words) {
			t.Errorf("%s:\n%s", words, p.tail())
		}
	}
}
