package interop

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/model"
)

// both is a running cluster in the real graph and in ours. The data plane has all there is.
type both struct {
	felix *Felix
	graph *calc.Graph
}

func running(changes []Change) both {
	x := both{NewFelix(calc.Config{Node: node}, false, false), calc.New(calc.Config{Node: node})}
	for _, c := range changes {
		x.felix.Update(c.Felix)
		c.Ours(x.graph)
	}
	x.felix.InSync()
	x.graph.InSync()
	x.felix.Flush()
	x.graph.Flush()
	return x
}

// each makes the changes one by one, each with a flush, and returns what one took on either side in the mean. A median
// would leave out the changes that cost.
func (x both) each(changes []Change) (theirs, mine []cost) {
	n := time.Duration(len(changes))
	runtime.GC() // so that no measurement pays for earlier garbage
	felix := timed(func() {
		for _, c := range changes {
			x.felix.Update(c.Felix)
			x.felix.Flush()
		}
	})
	runtime.GC()
	ours := timed(func() {
		for _, c := range changes {
			c.Ours(x.graph)
			x.graph.Flush()
		}
	})
	return []cost{{felix.clock / n, felix.cpu / n}}, []cost{{ours.clock / n, ours.cpu / n}}
}

// plainPod is pod i of another node.
func plainPod(i int, profile string, labels map[string]string) Change {
	id := model.WorkloadID{Node: "other", Orchestrator: "k8s", Workload: fmt.Sprint("wep-", i), Endpoint: "eth0"}
	a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	return Workload(id, &model.WorkloadEndpoint{
		ID: id, Labels: labels, Nets: []netip.Prefix{netip.PrefixFrom(a, 32)}, Profiles: []string{profile},
	})
}

// oneEach is a profile for each pod: those of Felix's benchmarks of its label index have such.
func oneEach(i int) string { return fmt.Sprint("namespace-", i) }

// watching is a policy that is active although it applies to nobody, with one rule per selector.
func watching(name string, selectors ...string) Change {
	p := tiered(name)
	p.Everywhere, p.Selector = true, "has(nobody-has-this)"
	for _, s := range selectors {
		p.InboundRules = append(p.InboundRules, allowFrom(s))
	}
	return Policy(p.ID, nil, p)
}

// BenchmarkEndpointUpdate changes one pod while 10,000 selectors are in use. "felix": selectors and pods of Felix's own
// benchmark. "kubernetes": selectors as its conversion of NetworkPolicies makes them.
func BenchmarkEndpointUpdate(b *testing.B) {
	const selectors = 10_000
	shapes := []struct {
		name     string
		selector func(i int) string
		labels   func(i int) map[string]string
		profile  func(i int) string
	}{
		{
			"felix", func(i int) string { return fmt.Sprintf(`alpha == "beta" && has(ipset-%d)`, i) },
			func(int) map[string]string { return map[string]string{"alpha": "beta", "ipset-1": "true"} },
			oneEach,
		},
		{
			"kubernetes", func(i int) string {
				return fmt.Sprintf("projectcalico.org/orchestrator == 'k8s' && projectcalico.org/namespace == 'ns-%d' && app == 'app-%d'", i%200, i)
			}, func(i int) map[string]string {
				return map[string]string{
					"projectcalico.org/orchestrator": "k8s", "projectcalico.org/namespace": fmt.Sprint("ns-", i%200), "app": fmt.Sprint("app-", i),
				}
			}, func(i int) string { return fmt.Sprint("kns.ns-", i%200) },
		},
	}
	for _, shape := range shapes {
		b.Run(fmt.Sprintf("%s/selectors=%d", shape.name, selectors), func(b *testing.B) {
			var list []string
			for i := range selectors {
				list = append(list, shape.selector(i))
			}
			x := running([]Change{watching("all", list...)})
			var changes []Change
			for i := range max(b.N, 1_000) {
				changes = append(changes, plainPod(i, shape.profile(i), shape.labels(i)))
			}
			b.ResetTimer()
			theirs, mine := x.each(changes)
			ratio(b, theirs, mine)
		})
	}
}

// BenchmarkSelectorAdd adds one selector more while there are 100,000 pods. As in Felix's own benchmark one selector of
// ten is one that all pods match.
func BenchmarkSelectorAdd(b *testing.B) {
	const pods = 100_000
	b.Run(fmt.Sprintf("felix/pods=%d", pods), func(b *testing.B) {
		var changes []Change
		for i := range pods {
			changes = append(changes, plainPod(i, oneEach(i), map[string]string{"alpha": "beta", "ipset-1": "true"}))
		}
		x := running(changes)
		changes = nil
		for i := range max(b.N, 20) {
			changes = append(changes, watching(fmt.Sprint("more-", i), fmt.Sprintf(`alpha == "beta" && has(ipset-%d) && !has(no-%d)`, i%10, i)))
		}
		b.ResetTimer()
		theirs, mine := x.each(changes)
		ratio(b, theirs, mine)
	})
	b.Run(fmt.Sprintf("kubernetes/pods=%d", pods), func(b *testing.B) {
		var changes []Change
		for i := range pods {
			changes = append(changes, plainPod(i, fmt.Sprint("kns.ns-", i%200), map[string]string{
				"projectcalico.org/orchestrator": "k8s", "projectcalico.org/namespace": fmt.Sprint("ns-", i%200), "app": fmt.Sprint("app-", i%1000),
			}))
		}
		x := running(changes)
		changes = nil
		for i := range max(b.N, 1_000) { // each is another selector; a hundred would be done in two milliseconds
			changes = append(changes, watching(fmt.Sprint("more-", i), fmt.Sprintf(
				"projectcalico.org/orchestrator == 'k8s' && projectcalico.org/namespace == 'ns-%d' && app == 'app-%d'", i%200, i%1000)))
		}
		b.ResetTimer()
		theirs, mine := x.each(changes)
		ratio(b, theirs, mine)
	})
}

// BenchmarkNamespaceUpdate relabels a namespace of one pod among 100,000, with 100 selectors that ask for namespaces by
// their names: Felix's own benchmark of its label index again.
func BenchmarkNamespaceUpdate(b *testing.B) {
	const pods, selectors = 100_000, 100
	var changes []Change
	for i := range pods {
		changes = append(changes, plainPod(i, oneEach(i), map[string]string{"alpha": "beta"}))
	}
	var list []string
	for i := range selectors {
		list = append(list, fmt.Sprintf(`projectcalico.org/name == "namespace-%d"`, i))
	}
	x := running(append(changes, watching("all", list...)))
	changes = nil
	for i := range max(b.N, 1_000) {
		name := fmt.Sprint("namespace-", i)
		changes = append(changes, Profile(name, &model.Profile{Name: name, Labels: map[string]string{
			"projectcalico.org/name": name, "update": fmt.Sprint(i), "shared": "foo",
		}}))
	}
	b.ResetTimer()
	theirs, mine := x.each(changes)
	ratio(b, theirs, mine)
}
