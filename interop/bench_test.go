package interop

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/api"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/model"
)

const node = "localhost"

// workload is a cluster, built anew for each measurement, so that none profits from an earlier one.
type workload struct {
	pods, local, tagPolicies, netsets int
}

// The shapes are those of Felix's own benchmarks: pods with five labels of 10 to 40 values each and one of thirty marks, a
// profile per namespace; policies that select a mark and allow five others; network sets of 1 to 1,000 addresses, each with
// a separate policy that applies to all pods.
var workloads = []struct {
	name string
	workload
}{
	{"tags=10000/pods=10000", workload{10_000, 200, 10_000, 0}},
	{"tags=10000/pods=250000", workload{250_000, 200, 10_000, 0}},
	{"netsets=1000/pods=10000", workload{10_000, 200, 0, 1_000}},
	{"netsets=10000/pods=10000", workload{10_000, 200, 0, 10_000}},
}

// maker gives each thing its number.
type maker struct {
	pod, address int
}

func (m *maker) next() netip.Prefix {
	n := m.address
	m.address++
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)
}

func mark(i int) string { return fmt.Sprintf("calico/mark-%d", i%30) }

// labels are fresh strings, as a decoder makes them.
func (m *maker) labels() map[string]string {
	out := map[string]string{mark(m.pod): "true"}
	for _, n := range []int{10, 11, 20, 30, 40} {
		out[fmt.Sprint("one-in-", n)] = fmt.Sprint("value-", m.pod%n)
	}
	m.pod++
	raw, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	out = nil
	if err := json.Unmarshal(raw, &out); err != nil {
		panic(err)
	}
	return out
}

func (m *maker) endpoint(host string, i int) Change {
	id := model.WorkloadID{Node: host, Orchestrator: "k8s", Workload: fmt.Sprint("wep-", i), Endpoint: "eth0"}
	return Workload(id, &model.WorkloadEndpoint{
		ID: id, Labels: m.labels(), Nets: []netip.Prefix{m.next()}, Profiles: []string{fmt.Sprint("kns.namespace-", i%100)},
	})
}

// changes is the cluster in the order Felix's benchmark has: policies, profiles, pods, network sets, local pods.
func (w workload) changes() []Change {
	var m maker
	out := []Change{Tier("default", &model.Tier{Name: "default", Order: model.OrderOf(1_000_000)})}
	for i := range w.tagPolicies {
		p := tiered(fmt.Sprint("tag-pol-", i))
		p.Selector = "has(" + mark(i) + ")"
		for j := range 5 {
			p.InboundRules = append(p.InboundRules, allowFrom("has("+mark(i+j)+")"))
		}
		out = append(out, Policy(p.ID, nil, p))
	}
	for i := range 100 {
		name := fmt.Sprint("kns.namespace-", i)
		out = append(out, Profile(name, &model.Profile{
			Name: name, Labels: map[string]string{"pcns.projectcalico.org/name": fmt.Sprint("namespace-", i)},
			Rules: &model.ProfileRules{},
		}))
	}
	for i := range w.pods {
		out = append(out, m.endpoint("remotehost", i))
	}
	for i := range w.netsets {
		name := fmt.Sprint("network-set-", i)
		n := &model.NetworkSet{Name: name, Labels: map[string]string{"network-set-name": name}}
		for range []int{1, 1, 1, 1, 2, 3, 4, 5, 100, 1000}[i%10] {
			n.Nets = append(n.Nets, m.next())
		}
		p := tiered(fmt.Sprint("network-set-pol-", i))
		p.Selector = "all()"
		p.InboundRules = []model.Rule{allowFrom("network-set-name == '" + name + "'")}
		out = append(out, NetworkSet(name, n), Policy(p.ID, nil, p))
	}
	for i := range w.local {
		out = append(out, m.endpoint(node, i))
	}
	return out
}

func tiered(name string) *model.Policy {
	id := model.PolicyID{Kind: model.KindTieredPolicy, Namespace: "default", Name: name}
	return &model.Policy{ID: id, Tier: "default"}
}

func allowFrom(sel string) model.Rule {
	return model.Rule{Action: model.ActionAllow, Source: model.Peer{Selector: sel}}
}

// cost is what something took: by the clock, and of all processors. On a machine with other work to do the second says
// more, but it counts the garbage collector's threads, which the clock does not see.
type cost struct{ clock, cpu time.Duration }

func timed(f func()) cost {
	began, used := time.Now(), cpuTime()
	f()
	return cost{time.Since(began), cpuTime() - used}
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// felixSide feeds a cluster to the real graph: what it took, the bytes it holds afterwards, the messages it sent.
func felixSide(w workload) (cost, int64, int) {
	kept = nil
	before := heap()
	var updates []api.Update
	for _, c := range w.changes() {
		updates = append(updates, c.Felix...)
	}
	runtime.GC()
	f := NewFelix(calc.Config{Node: node}, false, false)
	took := timed(func() {
		f.Update(updates)
		f.InSync()
		f.Flush()
	})
	updates = nil
	held := heap() - before
	n := f.count
	runtime.KeepAlive(f)
	return took, held, n
}

// ourSide does the same with ours.
func ourSide(w workload) (cost, int64, int) {
	kept = nil
	before := heap()
	var updates []func(*calc.Graph)
	for _, c := range w.changes() {
		updates = append(updates, c.Ours)
	}
	runtime.GC()
	g, n := calc.New(calc.Config{Node: node}), 0
	took := timed(func() {
		for _, update := range updates {
			update(g)
		}
		g.InSync()
		n = len(g.Flush())
	})
	updates = nil
	held := heap() - before
	kept = g
	return took, held, n
}

// kept is the last graph of ours, for heap profiles.
var kept *calc.Graph

func heap() int64 {
	var m runtime.MemStats
	for range 3 { // interned strings and cleanups go one round after what used them
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkSnapshot feeds a cluster and sends all that is due: real Felix and ours in turn; times are medians.
func BenchmarkSnapshot(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			var theirs, mine []cost
			var theirHeap, myHeap int64
			var theirCount, myCount int
			for range b.N {
				var d cost
				d, theirHeap, theirCount = felixSide(w.workload)
				theirs = append(theirs, d)
				d, myHeap, myCount = ourSide(w.workload)
				mine = append(mine, d)
			}
			ratio(b, theirs, mine)
			b.ReportMetric(float64(theirHeap)/1e6, "felix-MB")
			b.ReportMetric(float64(myHeap)/1e6, "ours-MB")
			b.ReportMetric(float64(theirHeap)/float64(myHeap), "heap-ratio")
			b.ReportMetric(float64(theirCount), "felix-msgs")
			b.ReportMetric(float64(myCount), "ours-msgs")
		})
	}
}

func median(list []cost, part func(cost) time.Duration) float64 {
	var out []time.Duration
	for _, c := range list {
		out = append(out, part(c))
	}
	slices.Sort(out)
	return float64(out[len(out)/2].Nanoseconds()) / 1e6
}

func ratio(b *testing.B, theirs, mine []cost) {
	clock, cpu := func(c cost) time.Duration { return c.clock }, func(c cost) time.Duration { return c.cpu }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(theirs, clock), "felix-ms")
	b.ReportMetric(median(mine, clock), "ours-ms")
	b.ReportMetric(median(theirs, clock)/median(mine, clock), "time-ratio")
	b.ReportMetric(median(theirs, cpu)/median(mine, cpu), "cpu-ratio")
}

// BenchmarkOurs is our side alone, for profiles.
func BenchmarkOurs(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			for range b.N {
				d, held, _ := ourSide(w.workload)
				b.ReportMetric(float64(d.clock.Microseconds())/1e3, "ms")
				b.ReportMetric(float64(d.cpu.Microseconds())/1e3, "cpu-ms")
				b.ReportMetric(float64(held)/1e6, "MB")
			}
		})
	}
}
