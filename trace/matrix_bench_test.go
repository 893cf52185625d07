package trace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// manyPods returns a cluster of four nodes and two namespaces with 20 applications each. A policy isolates every second application. More is further
// manifests; they may replace objects.
func manyPods(t testing.TB, pods int, more string) *Cluster {
	t.Helper()
	const nodes, apps = 4, 20
	namespaces := [...]string{"shop", "dev"}
	var b strings.Builder
	add := func(format string, values ...any) { fmt.Fprintf(&b, format+"\n---\n", values...) }
	for i := range nodes {
		add("{apiVersion: v1, kind: Node, metadata: {name: node-%d}, spec: {podCIDRs: [10.1.%d.0/22]}, status: {addresses: [{type: InternalIP, address: 192.168.16.%d}]}}", i, 4*i, i+1)
	}
	for _, ns := range namespaces {
		add("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", ns)
		for a := 0; a < apps; a += 2 {
			add("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p-%d, namespace: %s}, spec: {podSelector: {matchLabels: {app: app-%[1]d}}, ingress: [{from: [{podSelector: {matchLabels: {app: app-%[3]d}}}], ports: [{port: 8080}]}]}}", a, ns, a+1)
		}
	}
	for i := range pods {
		ns, app, node, at := namespaces[i%2], i/2%apps, i/2%nodes, i/(2*nodes)*2+i%2+2
		add("{apiVersion: v1, kind: Pod, metadata: {name: app-%d-%d, namespace: %s, labels: {app: app-%[1]d}}, spec: {nodeName: node-%[4]d, containers: [{name: c, image: i}]}, status: {phase: Running, podIPs: [{ip: 10.1.%[5]d.%[6]d}]}}", app, i, ns, node, 4*node+at/256, at%256)
	}
	b.WriteString(more)
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := manifest.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCluster(Config{})
	t.Cleanup(c.Close)
	if err := c.Apply(context.Background(), changes); err != nil {
		t.Fatal(err)
	}
	return c
}

// BenchmarkMatrix asks about all pairs of pods, after the cluster was made.
func BenchmarkMatrix(b *testing.B) {
	for _, pods := range []int{100, 300, 1000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			c := manyPods(b, pods, "")
			b.ReportAllocs()
			for b.Loop() {
				cells, err := c.Matrix(context.Background(), Pairs{Ports: []Port{{8080, model.TCP}}})
				if err != nil || len(cells) != pods*(pods-1) {
					b.Fatal(len(cells), err)
				}
			}
		})
	}
}
