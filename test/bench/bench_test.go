package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// The size all bars are set for.
const (
	manyServices = 10_000
	perService   = 10
)

// stopwatch collects durations of the two sides of a comparison.
type stopwatch struct{ agent, bare []time.Duration }

func timed(f func()) time.Duration {
	runtime.GC() // neither side pays for what was before
	began := time.Now()
	f()
	return time.Since(began)
}

// report reports medians: one stall of the machine does not change them.
func (w *stopwatch) report(b *testing.B) {
	agent, bare := percentile(w.agent, 50), percentile(w.bare, 50)
	b.ReportMetric(agent.Seconds()*1e3, "agent-ms")
	b.ReportMetric(bare.Seconds()*1e3, "bare-ms")
	b.ReportMetric(agent.Seconds()/bare.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op") // it would be that of both and of what is around them
}

// percentile is the smallest value that p percent of all do not exceed.
func percentile(d []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// isDump leaves out the lookups by which the agent finds interfaces after a resync.
func isDump(e *exchange) bool { return !e.write() && e.name != pingName && e.name != "ip_route_lookup" }

// BenchmarkFirstSync programs an empty VPP. The bare side writes the same messages through a vpp.Conn. The sequential side writes them
// too, and awaits each answer before the next request, as ligato's descriptors do.
func BenchmarkFirstSync(b *testing.B) {
	c := newCluster(manyServices, perService, nil)
	changes := c.changes()
	tape, dump := recordFirstSync(b, c, changes)
	writes := tape.calls(0, (*exchange).write)
	if realVPP() != "" {
		dial, stop := startVPP(b)
		rec := &recorder{}
		r := run(b, rec.record(dial), nil)
		r.sync(changes)
		r.stop()
		stop()
		benchmarkFirstSync(b, "vpp", func(b *testing.B) (dialer, func()) { return startVPP(b) }, changes, rec.tape(b).calls(0, (*exchange).write))
	}
	v := startSim(b, c)
	conn := dialBare(b, v.dial)
	if conn.do(b, writes); v.Dump() != dump {
		b.Fatal("the messages of the bare side configure something else than the agent")
	}
	conn.stop()
	v.stop()
	benchmarkFirstSync(b, "sim", func(b *testing.B) (dialer, func()) { v := startSim(b, c); return v.dial, v.stop }, changes, writes)
	benchmarkFirstSync(b, "null", func(b *testing.B) (dialer, func()) { return tape.listen(b), func() {} }, changes, writes)
}

// benchmarkFirstSync measures both sides in turn, each on a separate peer that fresh starts.
func benchmarkFirstSync(b *testing.B, peer string, fresh func(*testing.B) (dialer, func()), changes []event.Change, writes []vpp.Call) {
	b.Run("peer="+peer, func(b *testing.B) {
		var w stopwatch
		var sequential []time.Duration
		for b.Loop() {
			dial, stop := fresh(b)
			r := run(b, dial, nil)
			w.agent = append(w.agent, timed(func() { r.sync(changes) }))
			r.stop()
			stop()
			w.bare = append(w.bare, writeAll(b, fresh, writes, len(writes)))
			sequential = append(sequential, writeAll(b, fresh, writes, 1))
		}
		b.ReportMetric(float64(len(writes)), "writes")
		b.ReportMetric(percentile(sequential, 50).Seconds()*1e3, "sequential-ms")
		w.report(b)
	})
}

// writeAll returns how long a VPP takes for the messages, of which so many are sent before an answer is awaited.
func writeAll(b *testing.B, fresh func(*testing.B) (dialer, func()), writes []vpp.Call, atOnce int) time.Duration {
	dial, stop := fresh(b)
	defer stop()
	conn := dialBare(b, dial)
	defer conn.stop()
	return timed(func() {
		for part := range slices.Chunk(writes, atOnce) {
			conn.do(b, part)
		}
	})
}

func recordFirstSync(b *testing.B, c *cluster, changes []event.Change) (*tape, string) {
	v := startSim(b, c)
	defer v.stop()
	rec := &recorder{}
	r := run(b, rec.record(v.dial), nil)
	r.sync(changes)
	r.stop()
	return rec.tape(b), v.Dump()
}

// BenchmarkResync compares an unchanged VPP with what is wanted. The bare side asks VPP the same questions.
func BenchmarkResync(b *testing.B) {
	c := newCluster(manyServices, perService, nil)
	if realVPP() != "" {
		dial, stop := startVPP(b)
		_, dumps := recordResync(b, dial, c)
		benchmarkResync(b, "vpp", dial, c, dumps)
		stop()
	}
	v := startSim(b, c)
	tape, dumps := recordResync(b, v.dial, c)
	benchmarkResync(b, "sim", v.dial, c, dumps)
	v.stop()
	benchmarkResync(b, "null", tape.listen(b), c, dumps)
}

// recordResync returns all that is said until a resync is done, and the questions of the resync.
func recordResync(b *testing.B, dial dialer, c *cluster) (*tape, []vpp.Call) {
	rec := &recorder{}
	r := run(b, rec.record(dial), nil)
	r.sync(c.changes())
	before := len(rec.tape(b).list)
	r.check()
	r.stop()
	tape := rec.tape(b)
	return tape, tape.calls(before, isDump)
}

// benchmarkResync measures both sides in turn on one VPP.
func benchmarkResync(b *testing.B, peer string, dial dialer, c *cluster, dumps []vpp.Call) {
	b.Run("peer="+peer, func(b *testing.B) {
		r := run(b, dial, nil)
		r.sync(c.changes())
		conn := dialBare(b, dial)
		defer conn.stop()
		var w stopwatch
		for b.Loop() {
			w.agent = append(w.agent, timed(r.check))
			w.bare = append(w.bare, timed(func() {
				if err := conn.ask(dumps); err != nil {
					b.Fatal(err)
				}
			}))
		}
		r.stop()
		b.ReportMetric(float64(len(dumps)), "dumps")
		w.report(b)
	})
}

// check compares all of VPP with the desired state.
func (r *running) check() {
	r.tb.Helper()
	if c, err := r.agent.Recheck(r.tb.Context()); err != nil || c != nil {
		r.tb.Fatalf("an unchanged VPP: %+v, %v", c, err)
	}
}

// BenchmarkEndpointChange follows one endpoint that is added and removed, from the event to VPP's acknowledgement. The cost
// must not depend on the number of services: x100 is the ratio of the median to that at 100 services.
func BenchmarkEndpointChange(b *testing.B) {
	peers := []struct {
		name  string
		fresh func(*testing.B, *cluster) (dialer, func())
	}{{"sim", func(b *testing.B, c *cluster) (dialer, func()) { v := startSim(b, c); return v.dial, v.stop }}}
	if realVPP() != "" {
		peers = append(peers, peers[0])
		peers[0].name, peers[0].fresh = "vpp", func(b *testing.B, _ *cluster) (dialer, func()) { return startVPP(b) }
	}
	for _, peer := range peers {
		var few time.Duration
		for _, services := range []int{100, 1000, manyServices} {
			b.Run(fmt.Sprintf("peer=%s/services=%d", peer.name, services), func(b *testing.B) {
				c := newCluster(services, perService, nil)
				dial, stop := peer.fresh(b, c)
				p50 := benchmarkChange(b, c, dial)
				stop()
				if services == 100 {
					few = p50
				}
				b.ReportMetric(float64(p50)/float64(few), "x100")
			})
		}
	}
}

// benchmarkChange measures changes of one endpoint of the cluster and returns the median.
func benchmarkChange(b *testing.B, c *cluster, dial dialer) time.Duration {
	b.ReportAllocs()
	r := run(b, dial, nil)
	r.sync(c.changes())
	toggled := c.toggled(len(c.services) / 2)
	var took []time.Duration
	writes := 0
	runtime.GC()
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		writes += r.change(put(toggled[n%2])).Writes
		took = append(took, time.Since(began))
	}
	r.stop()
	b.ReportMetric(float64(writes)/float64(len(took)), "writes/op")
	b.ReportMetric(float64(percentile(took, 50))/1e3, "p50-µs")
	b.ReportMetric(float64(percentile(took, 99))/1e3, "p99-µs")
	return percentile(took, 50)
}

// BenchmarkMemory reports how much heap of an agent in sync one endpoint costs, from the object that the agent received to its memory of
// VPP's state. The VPP has ended before.
func BenchmarkMemory(b *testing.B) {
	for _, services := range []int{100, 1000, manyServices} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			var per float64
			for b.Loop() {
				before := heap()
				r := synced(b, services)
				with := heap()
				r.stop()
				per = (float64(with) - float64(before)) / float64(services*perService)
			}
			b.ReportMetric(per, "B/endpoint")
			b.ReportMetric(0, "ns/op") // means nothing here
		})
	}
}

// synced is an agent that holds a cluster nobody else holds, and whose VPP has gone.
func synced(b *testing.B, services int) *running {
	c := newCluster(services, perService, nil)
	v := startSim(b, c)
	hold := &atomic.Pointer[plumbed]{}
	hold.Store(v)
	r := run(b, func(ctx context.Context) (net.Conn, error) {
		if v := hold.Load(); v != nil {
			return v.dial(ctx)
		}
		return nil, errors.New("VPP has gone")
	}, nil)
	r.sync(c.changes())
	hold.Store(nil)
	v.stop()
	return r
}

func heap() uint64 {
	var m runtime.MemStats
	for range 3 { // finalizers and pools take a collection or two
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkTrace loads a cluster of 1,000 objects, an agent and a VPP per node, and asks about 10,000 packets.
func BenchmarkTrace(b *testing.B) {
	const packets = 10_000
	c, asked := traced(packets)
	var load, answer time.Duration
	for b.Loop() {
		began := time.Now()
		cluster := trace.NewCluster(trace.Config{Seed: 1})
		if err := cluster.Apply(context.Background(), c); err != nil {
			b.Fatal(err)
		}
		loaded := time.Now()
		for _, q := range asked {
			if a := cluster.Answer(q); a.Error != "" {
				b.Fatalf("%+v: %s", q, a.Error)
			}
		}
		load, answer = load+loaded.Sub(began), answer+time.Since(loaded)
		cluster.Close()
	}
	b.ReportMetric(0, "ns/op") // the sum of these:
	b.ReportMetric(load.Seconds()/float64(b.N), "load-s")
	b.ReportMetric(answer.Seconds()/float64(b.N), "answers-s")
	b.ReportMetric(float64(packets*b.N)/answer.Seconds(), "packets/s")
}

// traced is 1,000 objects, all Pods among them, and questions from pods, nodes and outside to all kinds of frontends.
func traced(packets int) ([]event.Change, []trace.Question) {
	const nodes, pods, services = 10, 390, 300
	rng := rand.New(rand.NewPCG(1, 0))
	var changes []event.Change
	for n := range nodes {
		changes = append(changes, put(&model.Node{
			Name: fmt.Sprintf("node-%d", n), InternalIPs: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 16, byte(n + 1)})},
			PodCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(n), 0}), 24)},
		}))
	}
	pod := func(i int) *model.Pod {
		return &model.Pod{
			ID: model.PodID{Namespace: "default", Name: fmt.Sprintf("pod-%d", i)}, NodeName: fmt.Sprintf("node-%d", i%nodes),
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i % nodes), byte(2 + i/nodes)})},
		}
	}
	for i := range pods {
		changes = append(changes, put(pod(i)))
	}
	for i := range services {
		svc := &model.Service{
			ID: model.ServiceID{Namespace: "default", Name: fmt.Sprintf("svc-%d", i)}, ClusterIPs: []netip.Addr{clusterIP(i)},
			Ports: []model.ServicePort{{Protocol: model.TCP, Port: servicePort}},
		}
		if i%3 == 0 {
			svc.Type, svc.Ports[0].NodePort = model.NodePort, uint16(30000+i)
		}
		slice := &model.EndpointSlice{
			ID: model.SliceID{Namespace: "default", Name: svc.ID.Name + "-1"}, Service: svc.ID,
			Ports: []model.EndpointPort{{Protocol: model.TCP, Port: targetPort}},
		}
		for range 1 + rng.IntN(5) {
			p := pod(rng.IntN(pods))
			slice.Endpoints = append(slice.Endpoints, model.Endpoint{Addr: p.IPs[0], Ready: true, Serving: true, NodeName: p.NodeName, Pod: p.ID})
		}
		changes = append(changes, put(svc), put(slice))
	}
	var asked []trace.Question
	for range packets {
		i := rng.IntN(services)
		q := trace.Question{From: fmt.Sprintf("pod:default/pod-%d", rng.IntN(pods)), To: fmt.Sprintf("service:default/svc-%d:%d", i, servicePort), Protocol: "TCP"}
		switch rng.IntN(6) {
		case 0:
			q.From = fmt.Sprintf("node:node-%d", rng.IntN(nodes))
		case 1:
			n := rng.IntN(nodes)
			q.From = fmt.Sprintf("external:198.51.100.7@node-%d", n)
			q.To = fmt.Sprintf("192.168.16.%d:%d", n+1, 30000+i/3*3)
		}
		asked = append(asked, q)
	}
	return changes, asked
}
