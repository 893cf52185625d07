package service

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/renderer"
)

var _ controller.Processor = (*Processor)(nil)

// world is a cluster's objects, and VPP's interfaces.
type world struct {
	objects map[model.Ref]model.Object
	located *event.Located
}

// see returns a renderer's whole state as text.
func (r *recorder) see() string {
	out := fmt.Sprintf("nodes %s front %s back %s state %+v\n", r.nodeIPs, r.front, r.back, r.node)
	for _, id := range slices.SortedFunc(maps.Keys(r.services), model.ServiceID.Compare) {
		out += r.services[id].String() + "\n"
	}
	return out
}

func fromWorld(w *world, order []model.Ref) (*Processor, *recorder) {
	r := &recorder{services: map[model.ServiceID]*renderer.ContivService{}}
	p := New(Config{NodeName: "node-1"}, r)
	for _, ref := range order {
		apply(p, w.objects[ref])
	}
	if w.located != nil {
		p.Located(w.located)
	}
	if err := p.Resync(); err != nil {
		panic(err)
	}
	return p, r
}

var refs = []string{"a", "b", "c"}

func drawEndpoint(t *rapid.T) model.Endpoint {
	ips := []string{"10.1.1.2", "10.1.1.3", "10.1.2.2", "10.1.1.254", "192.168.16.2", "fd00:1::2"}
	marks := []string{"", " -", " - s t", " t", " @a", " @b #node-1"}
	return marked(rapid.SampledFrom(ips).Draw(t, "ip") + rapid.SampledFrom(marks).Draw(t, "marks"))[0]
}

func drawObject(t *rapid.T) model.Object {
	name := rapid.SampledFrom(refs).Draw(t, "name")
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return cluster(name, "10.96.0."+fmt.Sprint(1+name[0]-'a'), func(s *model.Service) {
			s.Headless = rapid.IntRange(0, 5).Draw(t, "headless") == 0
			s.Type = rapid.SampledFrom([]model.ServiceType{model.ClusterIP, model.NodePort, model.LoadBalancer}).Draw(t, "type")
			s.Ports[0].NodePort = rapid.SampledFrom([]uint16{0, 80, 30080}).Draw(t, "node port")
			s.ExternalTrafficPolicy = model.TrafficPolicy(rapid.IntRange(0, 1).Draw(t, "policy"))
			all := []string{"203.0.113.7", "192.168.16.1", "192.168.16.2", "10.96.0.1"}
			s.ExternalIPs = addrs(rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, 2, rapid.ID).Draw(t, "external")...)
			s.Created = time.Unix(int64(rapid.IntRange(0, 2).Draw(t, "age")), 0)
			s.LoadBalancerIPs = []model.LoadBalancerIP{{Addr: addr("203.0.113.7"), Proxy: rapid.Bool().Draw(t, "proxy")}}
		})
	case 1:
		s := slice(rapid.SampledFrom(refs).Draw(t, "service"), rapid.SliceOfN(rapid.Custom(drawEndpoint), 0, 4).Draw(t, "endpoints")...)
		s.ID.Name = "slice-" + name
		return s
	case 2:
		n := int(name[0]-'a') + 1
		node := node(n, fmt.Sprintf("192.168.16.%d", n))
		node.Zone = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone")
		return node
	case 3:
		pod := pod(name, rapid.SampledFrom([]string{"10.1.1.2", "10.1.1.3", "10.1.1.254", "10.1.2.2"}).Draw(t, "ip"))
		pod.Finished = rapid.IntRange(0, 4).Draw(t, "finished") == 0
		return pod
	}
	return &model.ServiceCIDR{Name: name, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/1" + fmt.Sprint(name[0]-'a'))}}
}

// For any sequence of changes and failures, renderers have the state that a resync would send.
func TestIncrementalIsResync(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{objects: map[model.Ref]model.Object{}}
		r := &recorder{services: map[model.ServiceID]*renderer.ContivService{}}
		p := New(Config{NodeName: "node-1"}, r)
		now := time.Unix(0, 0)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				obj := drawObject(t)
				w.objects[obj.Ref()] = obj
				apply(p, obj)
			},
			"remove": func(t *rapid.T) {
				ref := drawObject(t).Ref()
				delete(w.objects, ref)
				p.Apply(event.Change{Ref: ref})
			},
			"located": func(t *rapid.T) {
				w.located = &event.Located{Uplink: "eth0", Pods: map[netip.Addr]string{}}
				for i, ip := range []string{"10.1.1.2", "10.1.1.3"} {
					if rapid.Bool().Draw(t, ip) {
						w.located.Pods[addr(ip)] = fmt.Sprintf("tap%d", i)
					}
				}
				p.Located(w.located)
			},
			"flush":   func(*rapid.T) { _ = p.Flush() },
			"resync":  func(*rapid.T) { _ = p.Resync() },
			"prepare": func(*rapid.T) { p.Prepare() },
			"faults": func(t *rapid.T) {
				n := 0
				r.fail = func(string) error {
					if n++; n%2 == 0 {
						return fmt.Errorf("fault %d", n)
					}
					return nil
				}
				_ = p.Flush()
				r.fail = nil
			},
			"": func(t *rapid.T) {
				now = now.Add(2 * lastRetry)
				p.Locate(now)
				if err := p.Flush(); err != nil {
					t.Fatal(err)
				}
				order := rapid.Permutation(slices.SortedFunc(maps.Keys(w.objects), compareRefs)).Draw(t, "order")
				fresh, want := fromWorld(w, order)
				if diff := cmp.Diff(want.see(), r.see()); diff != "" {
					t.Fatalf("-resync +incremental\n%s", diff)
				}
				if diff := cmp.Diff(reasons(fresh.Notes()), reasons(p.Notes())); diff != "" {
					t.Fatalf("notes -resync +incremental\n%s", diff)
				}
				r.take()
				if _ = p.Flush(); len(r.take()) != 0 {
					t.Fatal("calls without a change")
				}
			},
		})
	})
}

func compareRefs(a, b model.Ref) int {
	switch {
	case a.String() < b.String():
		return -1
	case a == b:
		return 0
	}
	return 1
}

// big returns a processor with n services of ten endpoints, and a function that exchanges one endpoint of one service.
func big(n int) (p *Processor, step func()) {
	p = New(Config{NodeName: "node-1"}, quiet{})
	for i := range n {
		eps := make([]model.Endpoint, 10)
		for j := range eps {
			eps[j] = ep(fmt.Sprintf("10.%d.%d.%d", 2+i/250, i%250, j+2))
		}
		name := fmt.Sprintf("s%d", i)
		apply(p, cluster(name, fmt.Sprintf("10.96.%d.%d", i/250, i%250)), slice(name, eps...))
	}
	if err := p.Resync(); err != nil {
		panic(err)
	}
	one := p.slices[model.SliceID{Namespace: "default", Name: "s0-1"}].now
	two := slice("s0", append(slices.Clone(one.Endpoints[:9]), ep("10.200.0.1"))...)
	turn := false
	return p, func() {
		if turn = !turn; turn {
			apply(p, two)
		} else {
			apply(p, one)
		}
		if err := p.Flush(); err != nil {
			panic(err)
		}
	}
}

// quiet is a renderer that does nothing.
type quiet struct{ renderer.ServiceRendererAPI }

func (quiet) Resync(*renderer.ResyncEventData) error { return nil }
func (quiet) UpdateService(_, _ *renderer.ContivService, _ []*renderer.ContivService) error {
	return nil
}

func TestWorkIsProportionalToTheChange(t *testing.T) {
	_, few := big(10)
	_, many := big(2000)
	if a, b := testing.AllocsPerRun(100, few), testing.AllocsPerRun(100, many); b > a {
		t.Errorf("a change of one endpoint allocates %v times among 10 services, %v times among 2000", a, b)
	}
}

func BenchmarkEndpointChange(b *testing.B) {
	for _, n := range []int{100, 10000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			_, step := big(n)
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

func BenchmarkResync(b *testing.B) {
	p, _ := big(10000)
	b.ReportAllocs()
	for b.Loop() {
		for _, s := range p.services {
			p.mark(s)
		}
		_ = p.Resync()
	}
}
