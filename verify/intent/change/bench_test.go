package change

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
)

// BenchmarkCompare compares 5,000 pods in 1,000 workloads of 50 namespaces, with 1,000 policies, before and after a policy for all pods of one
// namespace. In the second case each pod is in a network of a policy, alone: policies distinguish all of them.
func BenchmarkCompare(b *testing.B) {
	var docs []string
	each := &model.Policy{ID: model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "each"}, Tier: model.TierDefault, Egress: true, Selector: "all()"}
	for n := range 50 {
		for w := range 20 {
			for i := range 5 {
				ip := fmt.Sprintf("10.%d.%d.%d", n, w, 2+i)
				docs = append(docs, pod(fmt.Sprintf("ns-%d/w%d-%d", n, w, i), fmt.Sprintf("app: w%d", w), ip))
				r := model.Rule{Action: model.ActionAllow}
				port := uint16(len(each.OutboundRules))
				r.Destination.Nets, r.Destination.Ports = []netip.Prefix{netip.MustParsePrefix(ip + "/32")}, []model.PortMatch{{First: port, Last: port}}
				each.OutboundRules = append(each.OutboundRules, r)
			}
			docs = append(docs, fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: w%d, namespace: ns-%d}, spec: {podSelector: {matchLabels: {app: w%d}}, ingress: [{from: [{podSelector: {matchLabels: {app: w%d}}}], ports: [{port: %d}]}]}}", w, n, w, (w+1)%20, 8000+w))
		}
	}
	each.OutboundRules = append(each.OutboundRules, model.Rule{Action: model.ActionAllow})
	before := load(b, docs...)
	after := load(b, append(docs, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: all, namespace: ns-3}, spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 9000}]}]}}")...)
	for _, tc := range []struct {
		name string
		more []model.Object
		want string
	}{
		{"workloads", nil, "opened: every pod -> ns:ns-3: TCP 9000"},
		{"pods", []model.Object{each}, "ns:ns-8 + ns:ns-9 -> ns:ns-3: TCP 9000"}, // but for the pods of ns-3: each has a line, as it cannot reach itself
	} {
		b.Run(tc.name, func(b *testing.B) {
			old, now := slices.Concat(before, tc.more), slices.Concat(after, tc.more)
			b.ReportAllocs()
			for b.Loop() {
				r := Compare(old, now)
				if got := strings.Join(lines(r), "\n"); !strings.Contains(got, tc.want) {
					b.Fatal(got)
				}
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapSys)/1e6, "heap-MB")
			}
		})
	}
}
