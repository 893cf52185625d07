package calc_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/model"
)

// pod is endpoint number i, in one of 200 namespaces; the first 200 are local.
func pod(i int) (model.WorkloadID, *model.WorkloadEndpoint) {
	node := self
	if i >= 200 {
		node = fmt.Sprint("node-", i/200)
	}
	id := model.WorkloadID{Node: node, Orchestrator: "k8s", Workload: fmt.Sprint("ns/pod-", i), Endpoint: "eth0"}
	a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	return id, &model.WorkloadEndpoint{
		ID: id, State: "active", Interface: fmt.Sprint("cali", i), Profiles: []string{fmt.Sprint("kns.ns-", i%200)},
		Nets: []netip.Prefix{netip.PrefixFrom(a, 32)},
		Labels: map[string]string{
			"projectcalico.org/namespace": fmt.Sprint("ns-", i%200), "projectcalico.org/orchestrator": "k8s",
			"app": fmt.Sprint("app-", i%1000), "pod": fmt.Sprint("pod-", i),
		},
		Ports: []model.NamedPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
}

// peerPolicy allows one app to receive from the pods of one namespace.
func peerPolicy(i int, selector string) *model.Policy {
	id := model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: fmt.Sprint("ns-", i%200), Name: fmt.Sprint("p-", i)}
	peer := fmt.Sprintf("projectcalico.org/orchestrator == 'k8s' && app == 'app-%d'", i%1000)
	return &model.Policy{
		ID: id, Tier: "default", Order: model.OrderOf(1000), Selector: selector, Ingress: true,
		InboundRules: []model.Rule{{Action: model.ActionAllow, Source: model.Peer{Selector: peer}}},
	}
}

func cluster(pods, policies int, selector func(int) string) *calc.Graph {
	g := calc.New(calc.Config{Node: self})
	for i := range 200 {
		name := fmt.Sprint("kns.ns-", i)
		g.SetProfile(name, &model.Profile{Name: name, Labels: map[string]string{"pcns.team": fmt.Sprint("team-", i%10)}})
	}
	for i := range policies {
		p := peerPolicy(i, selector(i))
		g.SetPolicy(p.ID, p)
	}
	for i := range pods {
		g.SetWorkload(pod(i))
	}
	return g
}

func oneNamespace(i int) string { return fmt.Sprintf("projectcalico.org/namespace == 'ns-%d'", i%200) }

// BenchmarkStart loads a cluster and sends all of it: 200 local pods of many, and the policies that apply to them.
func BenchmarkStart(b *testing.B) {
	for _, n := range []struct{ pods, policies int }{{10_000, 1_000}, {10_000, 10_000}, {250_000, 10_000}} {
		b.Run(fmt.Sprintf("pods=%d/policies=%d", n.pods, n.policies), func(b *testing.B) {
			b.ReportAllocs()
			var g *calc.Graph
			for b.Loop() {
				g = cluster(n.pods, n.policies, oneNamespace)
				g.InSync()
				g.Flush()
			}
			b.StopTimer()
			with := heap()
			runtime.KeepAlive(g)
			g = nil
			b.ReportMetric(float64(with-heap())/1e6, "MB-held")
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkUpdate changes one object in a running cluster of 100,000 pods and 10,000 policies, and flushes.
func BenchmarkUpdate(b *testing.B) {
	g := cluster(100_000, 10_000, oneNamespace)
	g.InSync()
	g.Flush()
	flip := 0
	run := func(name string, change func(odd bool)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			messages := 0
			for b.Loop() {
				flip++
				change(flip%2 == 1)
				messages += len(g.Flush())
			}
			b.ReportMetric(float64(messages)/float64(b.N), "messages/op")
		})
	}
	relabel := func(i int) func(bool) {
		id, e := pod(i)
		other := *e
		other.Labels = map[string]string{"app": "app-1", "projectcalico.org/orchestrator": "k8s", "pod": "x"}
		return func(odd bool) {
			if odd {
				g.SetWorkload(id, &other)
			} else {
				g.SetWorkload(id, e)
			}
		}
	}
	run("remote-pod-relabelled", relabel(50_000))
	run("local-pod-relabelled", relabel(50))
	run("remote-pod-comes-and-goes", func(odd bool) {
		id, e := pod(100_001)
		if odd {
			g.SetWorkload(id, e)
		} else {
			g.SetWorkload(id, nil)
		}
	})
	run("policy-comes-and-goes", func(odd bool) {
		p := peerPolicy(20_001, oneNamespace(1))
		p.InboundRules[0].Source.Selector = "app == 'app-7' && pod == 'pod-7'"
		if odd {
			g.SetPolicy(p.ID, p)
		} else {
			g.SetPolicy(p.ID, nil)
		}
	})
	run("namespace-relabelled", func(odd bool) {
		g.SetProfile("kns.ns-7", &model.Profile{Name: "kns.ns-7", Labels: map[string]string{"pcns.team": fmt.Sprint(odd)}})
	})
	run("nothing", func(bool) {})
}

// BenchmarkSelectors measures cases that are hard for an index: one pod changes while 10,000 different selectors ask
// for labels that nearly every pod has; and one selector is added to 100,000 pods.
func BenchmarkSelectors(b *testing.B) {
	g := cluster(100_000, 0, nil)
	id := model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "all"}
	p := &model.Policy{ID: id, Tier: "default", Everywhere: true}
	for i := range 10_000 {
		sel := fmt.Sprintf("projectcalico.org/orchestrator == 'k8s' && projectcalico.org/namespace == 'ns-%d' && app == 'app-%d'", i%200, i)
		p.InboundRules = append(p.InboundRules, model.Rule{Source: model.Peer{Selector: sel}})
	}
	g.SetPolicy(id, p)
	g.InSync()
	g.Flush()
	podID, e := pod(50_000)
	other := *e
	other.Labels = map[string]string{
		"app": "app-1", "projectcalico.org/orchestrator": "k8s", "projectcalico.org/namespace": "ns-1",
	}
	flip := false
	b.Run("one-pod-among-10000-selectors", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if flip = !flip; flip {
				g.SetWorkload(podID, &other)
			} else {
				g.SetWorkload(podID, e)
			}
			g.Flush()
		}
	})
	one := *p
	one.ID.Name, one.Selector = "one", "has(no-local-pod-has-it)"
	one.InboundRules = []model.Rule{{Source: model.Peer{
		Selector: "projectcalico.org/orchestrator == 'k8s' && projectcalico.org/namespace == 'ns-7' && app == 'app-7'",
	}}}
	b.Run("one-selector-among-100000-pods", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g.SetPolicy(one.ID, &one)
			g.Flush()
			g.SetPolicy(one.ID, nil)
			g.Flush()
		}
	})
	netset := &model.NetworkSet{Name: "n", Nets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Labels: e.Labels}
	b.Run("one-network-set-comes-and-goes", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g.SetNetworkSet("n", netset)
			g.SetNetworkSet("n", nil)
			g.Flush()
		}
	})
}

// BenchmarkSelectorAdd adds twenty selectors one by one, each with a flush, to 100,000 pods. In "felix" each pod has a
// different profile, and two of the selectors match all pods. In "kubernetes" each selector matches 100. No selector
// was used before.
func BenchmarkSelectorAdd(b *testing.B) {
	const pods, more = 100_000, 20
	shapes := []struct {
		name     string
		labels   func(i int) map[string]string
		profile  func(i int) string
		selector func(i int) string
	}{
		{
			"felix", func(int) map[string]string { return map[string]string{"alpha": "beta", "ipset-1": "true"} },
			func(i int) string { return fmt.Sprint("namespace-", i) },
			func(i int) string { return fmt.Sprintf(`alpha == "beta" && has(ipset-%d) && !has(no-%d)`, i%10, i) },
		},
		{
			"kubernetes", func(i int) map[string]string {
				return map[string]string{
					"projectcalico.org/orchestrator": "k8s", "projectcalico.org/namespace": fmt.Sprint("ns-", i%200), "app": fmt.Sprint("app-", i%1000),
				}
			},
			func(i int) string { return fmt.Sprint("kns.ns-", i%200) },
			func(i int) string {
				return fmt.Sprintf("projectcalico.org/orchestrator == 'k8s' && projectcalico.org/namespace == 'ns-%d' && app == 'app-%d' && app != '%d'", i%200, i%1000, i)
			},
		},
	}
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			b.ReportAllocs()
			g := calc.New(calc.Config{Node: self})
			for i := range pods {
				id, e := pod(i + 200) // on other nodes
				e.Labels, e.Profiles, e.Ports = shape.labels(i), []string{shape.profile(i)}, nil
				g.SetWorkload(id, e)
			}
			g.InSync()
			g.Flush()
			round := 0
			for b.Loop() {
				var ids []model.PolicyID
				for range more {
					p := &model.Policy{
						ID:   model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprint("more-", round)},
						Tier: "default", Everywhere: true, Selector: "has(nobody-has-this)", Ingress: true,
						InboundRules: []model.Rule{{Action: model.ActionAllow, Source: model.Peer{Selector: shape.selector(round)}}},
					}
					g.SetPolicy(p.ID, p)
					g.Flush()
					ids = append(ids, p.ID)
					round++
				}
				b.StopTimer()
				for _, id := range ids {
					g.SetPolicy(id, nil)
				}
				g.Flush()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(round), "µs/selector")
		})
	}
}
