package intent

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/verify/intent/ask"
)

// manifests is a cluster of 5,000 pods in 1,000 workloads of 50 namespaces, with 1,000 policies: in each namespace one that isolates it, and one
// of each of 19 workloads, which allows others of the namespace, another namespace and a network outside.
func manifests() string {
	var b strings.Builder
	for n := range 50 {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Namespace, metadata: {name: ns-%d, labels: {stage: s-%d}}}\n", n, n%3)
		fmt.Fprintf(&b, "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: isolate, namespace: ns-%d}, spec: {podSelector: {}, policyTypes: [Ingress, Egress], egress: [{to: [{namespaceSelector: {}}]}, {to: [{ipBlock: {cidr: 203.0.%d.0/24}}]}]}}\n", n, n)
		for w := range 20 {
			for i := range 5 {
				ip := fmt.Sprintf("10.%d.%d.%d", 10+n, w, 2+i)
				fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Pod, metadata: {name: w%d-%d, namespace: ns-%d, labels: {app: w%d, pod: w%d-%d}}, spec: {nodeName: node-%d, containers: [{name: c, ports: [{name: http, containerPort: %d}]}]}, status: {podIP: %s, podIPs: [{ip: %s}]}}\n", w, i, n, w, w, i, i, 8000+w, ip, ip)
			}
			if w == 0 {
				continue
			}
			fmt.Fprintf(&b, "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: w%d, namespace: ns-%d}, spec: {podSelector: {matchLabels: {app: w%d}}, ingress: [{from: [{podSelector: {matchLabels: {app: w%d}}}], ports: [{port: http}]}, {from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ns-%d}}, podSelector: {matchLabels: {app: w%d}}}], ports: [{port: %d}, {port: 9000, endPort: 9100}]}, {from: [{ipBlock: {cidr: 198.51.%d.0/24}}]}]}}\n",
				w, n, w, w-1, (n+1)%50, w, 8000+w, w)
		}
	}
	return b.String()
}

// questions are assertions of all forms. Some are violated.
func questions(t testing.TB) (list []ask.Assertion) {
	for text, kind := range map[string]ask.Kind{
		"namespaces:stage=s-0 -> namespaces:stage=s-1": ask.Never,
		"ns:ns-3 -> ns:ns-7":                           ask.Never,
		"ns:ns-4 -> ns:ns-3,app=w2:8002":               ask.Never,
		"outside -> pods:app=w0":                       ask.Never,
		"outside -> any:22":                            ask.Never,
		"any -> outside":                               ask.Never,
		"any -> any":                                   ask.Never,
		"any -> any:UDP":                               ask.Always,
		"pods:app=w4 -> pods:app=w5:8005":              ask.Never,
		"workload:ns-1/w4 -> workload:ns-1/w5:8005":    ask.Always,
		"cidr:10.0.0.0/8 -> cidr:203.0.113.0/24":       ask.Never,
		"pod:ns-1/w4-1 -> pod:ns-1/w5-2:8005":          ask.Always,
	} {
		a, err := ask.Parse(kind, text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

// BenchmarkQuestions answers 12 assertions about 5,000 pods and 1,000 policies, from objects on. In the second case each pod is in a network of
// a policy, alone: policies distinguish all of them.
func BenchmarkQuestions(b *testing.B) {
	objects := load(b, manifests())
	for name, distinct := range map[string]bool{"workloads": false, "pods": true} {
		b.Run(name, func(b *testing.B) {
			list := objects
			if distinct {
				p := &model.Policy{ID: model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "all"}, Tier: model.TierDefault, Egress: true, Selector: "all()"}
				for _, o := range objects {
					if pod, is := o.(*model.Pod); is {
						r := model.Rule{Action: model.ActionAllow}
						r.Destination.Nets = single(pod.IPs...)
						r.Destination.Ports = []model.PortMatch{{First: uint16(len(p.OutboundRules)), Last: uint16(len(p.OutboundRules))}}
						p.OutboundRules = append(p.OutboundRules, r)
					}
				}
				list = append(list[:len(list):len(list)], p)
			}
			asked := questions(b)
			b.ReportAllocs()
			begin, n := processorTime(), 0
			for b.Loop() {
				c := Read(list)
				r := c.Check(asked)
				if want := map[bool]int{false: 1000, true: 5000}[distinct]; r.Pods != 5000 || r.Classes != want {
					b.Fatalf("%d pods, %d classes", r.Pods, r.Classes)
				}
				n++
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				nodes, _ := c.Space.Size()
				b.ReportMetric(float64(m.HeapSys)/1e6, "heap-MB")
				b.ReportMetric(float64(nodes), "nodes")
			}
			b.ReportMetric((processorTime()-begin).Seconds()/float64(n), "cpu-s/op")
		})
	}
}

// processorTime is that of this process, with the garbage collector: other programs on the machine do not change it.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
