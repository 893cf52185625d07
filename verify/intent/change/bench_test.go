package change

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkCompare compares 5,000 pods in 1,000 workloads of 50 namespaces, with 1,000 policies, before and after a policy for all pods of one namespace.
func BenchmarkCompare(b *testing.B) {
	var docs []string
	for n := range 50 {
		for w := range 20 {
			for i := range 5 {
				docs = append(docs, pod(fmt.Sprintf("ns-%d/w%d-%d", n, w, i), fmt.Sprintf("app: w%d", w), fmt.Sprintf("10.%d.%d.%d", n, w, 2+i)))
			}
			docs = append(docs, fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: w%d, namespace: ns-%d}, spec: {podSelector: {matchLabels: {app: w%d}}, ingress: [{from: [{podSelector: {matchLabels: {app: w%d}}}], ports: [{port: %d}]}]}}", w, n, w, (w+1)%20, 8000+w))
		}
	}
	before := load(b, docs...)
	after := load(b, append(docs, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: all, namespace: ns-3}, spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 9000}]}]}}")...)
	b.ReportAllocs()
	for b.Loop() {
		r := Compare(before, after)
		if got := strings.Join(lines(r), "\n"); !strings.Contains(got, "opened: every pod -> ns:ns-3: TCP 9000") {
			b.Fatal(got)
		}
	}
}
