package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// loadAddr is the address of the node that is measured.
var loadAddr = netip.MustParseAddr("192.168.77.1")

// TestLoad is BenchmarkLoad with few Services: what is asked of each is the same.
func TestLoad(t *testing.T) {
	repeat(t)
	for _, f := range loaded(t, newCluster(t), 300, 10, 100, 20) {
		t.Logf("%10.3f %s", f.value, f.unit)
	}
}

// BenchmarkLoad measures an agent while a load generator makes 5,000 Services of 10 endpoints each, then 50 changes per
// second; then an agent that starts with all objects, and one that restarts on the same VPP.
func BenchmarkLoad(b *testing.B) {
	const services, endpoints, changes, rate = 5000, 10, 1500, 50
	b.Run(fmt.Sprintf("services=%d/endpoints=%d", services, endpoints), func(b *testing.B) {
		for _, f := range loaded(b, newCluster(b), services, endpoints, changes, rate) {
			b.ReportMetric(f.value, f.unit)
		}
		b.ReportMetric(0, "ns/op")
	})
}

// figure is something measured; its unit has its name.
type figure struct {
	value float64
	unit  string
}

// measured is a VPP of this process, and agents on it one after the other.
type measured struct {
	t       testing.TB
	c       *cluster
	l       *load
	vpp     *sim.VPP
	target  target
	ports   uint16
	figures []figure
}

func (m *measured) note(value float64, unit string) {
	m.figures = append(m.figures, figure{value, unit})
}

// loaded is the life of an agent under load.
func loaded(t testing.TB, c *cluster, services int, endpoints uint32, changes, rate int) []figure {
	t.Helper()
	m := &measured{t: t, c: c, l: newLoad(t, c, endpoints)}
	m.newVPP()
	s := startAgent(t, c, "nothing there", m.target)
	began := time.Now()
	m.l.grow(t, services)
	m.note(time.Since(began).Seconds(), "create-s")
	created := time.Now()
	m.served()
	m.note(time.Since(created).Seconds(), "then-in-sync-s")
	m.note(cpu(t, s.all[0].pid()).Seconds(), "create-cpu-s")
	m.memory(s, "grown")

	m.change(s, changes, rate)
	m.memory(s, "changed")
	s.all[0].kill()

	s = startAgent(t, c, "again on the same VPP", m.target)
	m.served()
	m.note(s.ready.Seconds(), "again-in-sync-s")
	s.all[0].kill()

	m.newVPP()
	s = startAgent(t, c, "all there", m.target)
	m.served()
	m.note(s.ready.Seconds(), "start-in-sync-s")
	m.note(cpu(t, s.all[0].pid()).Seconds(), "start-cpu-s")
	m.memory(s, "started")
	return m.figures
}

// newVPP starts an empty VPP with the interfaces of the node, until the test ends.
func (m *measured) newVPP() {
	m.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	v, socket, wait, err := sim.Start(ctx, shortDir(m.t), sim.Config{Seed: 1, PuntLocal: true})
	if err != nil {
		stop()
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { stop(); wait(); v.Close() })
	node := &model.Node{Name: loadNode, InternalIPs: []netip.Addr{loadAddr}}
	if err := cni.New(v, loadNode).Apply([]event.Change{{Ref: node.Ref(), Object: node}}); err != nil {
		m.t.Fatal(err)
	}
	m.vpp, m.target = v, target{socket: socket, uplink: cni.Uplink, overlay: cni.Overlay, host: cni.Host}
}

// served waits until a connection of the node to each Service gets to one of its endpoints.
func (m *measured) served() {
	m.t.Helper()
	list, err := m.c.client.CoreV1().Services(loadSpace).List(context.Background(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		m.t.Fatal(err)
	}
	vips := map[string]netip.AddrPort{}
	for i := range list.Items {
		vips[list.Items[i].Name] = netip.AddrPortFrom(netip.MustParseAddr(list.Items[i].Spec.ClusterIP), 80)
	}
	if len(vips) != len(m.l.slices) {
		m.t.Fatalf("%d Services, want %d", len(vips), len(m.l.slices))
	}
	waiting := slices.Clone(m.l.slices)
	eventually(m.t, "every Service served", func() error {
		for len(waiting) > 0 {
			slice := waiting[len(waiting)-1]
			to, err := m.connect(vips[slice.Name])
			if err != nil {
				return fmt.Errorf("%d Services are not served, among them %s: %w", len(waiting), slice.Name, err)
			}
			its := slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == to.Addr().String() })
			if !its || to.Port() != 8080 {
				return fmt.Errorf("a connection to %s gets to %s, which is no endpoint of it", slice.Name, to)
			}
			waiting = waiting[:len(waiting)-1]
		}
		return nil
	})
}

// connect sends a first packet from the node, and returns where it arrived.
func (m *measured) connect(vip netip.AddrPort) (netip.AddrPort, error) {
	m.ports = m.ports%40000 + 1
	fate := m.vpp.Send(cni.Host, packet.NewTCP(netip.AddrPortFrom(loadAddr, 20000+m.ports), vip))
	if len(fate.Out) != 1 || fate.Out[0].Origin != sim.Forwarded {
		var why strings.Builder
		for _, hop := range fate.Hops {
			fmt.Fprintf(&why, "\n  %v", hop)
		}
		return netip.AddrPort{}, fmt.Errorf("%s: %d packets out%s", vip, len(fate.Out), &why)
	}
	return netip.AddrPortFrom(fate.Out[0].Packet.Dst, fate.Out[0].Packet.DstPort), nil
}

// change replaces an endpoint each of that many Services, so many a second, whether the ones before are programmed or not.
func (m *measured) change(s *subject, changes, rate int) {
	m.t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	order := random.Perm(len(m.l.slices))
	var (
		group errgroup.Group
		mu    sync.Mutex
		late  []time.Duration
	)
	before, began := cpu(m.t, s.all[0].pid()), time.Now()
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := range changes {
		<-tick.C
		group.Go(func() error {
			took, err := m.l.replace(s.witness, order[n%len(order)])
			mu.Lock()
			defer mu.Unlock()
			late = append(late, took)
			return err
		})
		if (n+1)%len(order) == 0 { // once around: nobody is changed twice at a time
			if err := group.Wait(); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	if err := group.Wait(); err != nil {
		m.t.Fatal(err)
	}
	took := time.Since(began)
	slices.Sort(late)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	m.note(ms(late[len(late)/2]), "p50-ms")
	m.note(ms(late[(len(late)*99+99)/100-1]), "p99-ms")
	m.note(ms(late[len(late)-1]), "max-ms")
	m.note(float64(changes)/took.Seconds(), "changes/s")
	m.note(ms(cpu(m.t, s.all[0].pid())-before)/float64(changes), "cpu-ms/change")
}

func (m *measured) memory(s *subject, when string) {
	now, most := resident(m.t, s.all[0].pid())
	m.note(now, when+"-MB")
	m.note(most, when+"-peak-MB")
}
