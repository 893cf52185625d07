package cnat

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/model/svcmodel"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// book is a sink that keeps what it was told as text.
type book map[string][]string

func (b book) Set(owner string, values map[string]proto.Message, notes []model.Note) {
	if len(values) == 0 && len(notes) == 0 {
		delete(b, owner)
		return
	}
	b[owner] = lines(values, notes)
}

// A cluster without services of a family that is served has nothing of cnat.
func TestRendererOwners(t *testing.T) {
	b := book{}
	r := New(v6, b)
	_ = r.UpdateNode(node())
	owners := func(when string, want ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(b)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	v4only := renderer.NewContivService()
	v4only.ID = svcmodel.ID{Namespace: "default", Name: "old"}
	v4only.ClusterIPs.Add(net.ParseIP("10.96.0.10"))
	_ = r.AddService(v4only)
	owners("IPv4 only")
	_ = r.AddService(web(endpoints(oneHere)))
	owners("IPv6", "cnat/node", "cnat/service/default/web")
	now := web()
	now.ClusterIPs = v4only.ClusterIPs
	_ = r.UpdateService(nil, now, nil)
	owners("IPv4 only, again")
	_ = r.AddService(web(endpoints(oneHere)))
	_ = r.DeleteService(web(), nil)
	owners("deleted")
}

func drawService(t *rapid.T, name string) *renderer.ContivService {
	ips := rapid.SliceOfN(rapid.SampledFrom([]string{"10.1.1.2", "10.1.2.2", "fd00:1:1::2", "fd00:1:1::3", "fd00:1:2::2", "fd00:16::2"}), 0, 4)
	svc := renderer.NewContivService()
	svc.ID = svcmodel.ID{Namespace: "default", Name: name}
	svc.TrafficPolicy = renderer.TrafficPolicyType(rapid.IntRange(0, 1).Draw(t, "policy"))
	svc.InternalTrafficPolicy = renderer.TrafficPolicyType(rapid.IntRange(0, 1).Draw(t, "internal"))
	svc.SessionAffinityTimeout = rapid.SampledFrom([]uint32{0, 600}).Draw(t, "affinity")
	for _, ip := range rapid.SliceOfN(rapid.SampledFrom([]string{"10.96.0." + name, "fd00:96::" + name}), 1, 2).Draw(t, "cluster") {
		svc.ClusterIPs.Add(net.ParseIP(ip))
	}
	for _, ip := range rapid.SliceOfN(rapid.SampledFrom([]string{"203.0.113.7", "2001:db8::7", "fd00:16::1", "fd00:16::3"}), 0, 3).Draw(t, "external") {
		svc.ExternalIPs.Add(net.ParseIP(ip))
	}
	for _, port := range []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(t, "ports")] {
		svc.Ports[port] = &renderer.ServicePort{
			Protocol: rapid.SampledFrom([]renderer.ProtocolType{renderer.TCP, renderer.UDP, renderer.SCTP}).Draw(t, "protocol"),
			Port:     rapid.Uint16Range(1, 4).Draw(t, "port"), NodePort: rapid.Uint16Range(0, 2).Draw(t, "node port"),
		}
		for _, ip := range ips.Draw(t, "endpoints") {
			svc.Backends[port] = append(svc.Backends[port], &renderer.ServiceBackend{
				IP: net.ParseIP(ip), Port: 8080, Local: ip == "10.1.1.2" || len(ip) > 8 && ip[:8] == "fd00:1:1",
			})
		}
	}
	return svc
}

func drawConfig(t *rapid.T) Config {
	families := rapid.SampledFrom([]Config{v6, both, {IPv4: true}}).Draw(t, "families")
	families.LocalEndpointWeight, families.Maglev = rapid.Byte().Draw(t, "weight"), rapid.Bool().Draw(t, "maglev")
	return families
}

func drawNode(t *rapid.T) renderer.NodeState {
	n := node()
	if rapid.Bool().Draw(t, "other address") {
		n.IPs = []netip.Addr{netip.MustParseAddr("fd00:16::3")}
	}
	if rapid.Bool().Draw(t, "no uplink address") {
		n.UplinkIPs = nil
	}
	if rapid.Bool().Draw(t, "nothing") {
		n = renderer.NodeState{}
	}
	return n
}

func drawNodeIPs(t *rapid.T) *renderer.IPAddresses {
	set := renderer.NewIPAddresses()
	for _, ip := range rapid.SliceOf(rapid.SampledFrom([]string{"fd00:16::1", "fd00:16::2", "fd00:16::3", "fd00:96::1", "2001:db8::7"})).Draw(t, "node IPs") {
		set.Add(net.ParseIP(ip))
	}
	return set
}

// Whatever the calls were, the sink has what one Resync of the final state gives.
func TestIncrementalIsResync(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			cfg   = drawConfig(t)
			state = renderer.NewResyncEventData()
			now   = map[string]*renderer.ContivService{}
			n     renderer.NodeState
			b     = book{}
			r     = New(cfg, b)
		)
		name := func(t *rapid.T) string { return rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "name") }
		t.Repeat(map[string]func(*rapid.T){
			"service": func(t *rapid.T) {
				id := name(t)
				svc := drawService(t, id)
				if old := now[id]; old == nil {
					_ = r.AddService(svc)
				} else {
					_ = r.UpdateService(old, svc, nil)
				}
				now[id] = svc
			},
			"delete": func(t *rapid.T) {
				id := name(t)
				if old := now[id]; old != nil {
					_ = r.DeleteService(old, nil)
					delete(now, id)
				}
			},
			"node": func(t *rapid.T) { n = drawNode(t); _ = r.UpdateNode(n) },
			"node IPs": func(t *rapid.T) {
				state.NodeIPs = drawNodeIPs(t)
				_ = r.UpdateNodePortServices(state.NodeIPs.Copy(), nil)
			},
			"interfaces": func(t *rapid.T) {
				names := rapid.SliceOf(rapid.SampledFrom([]string{"eth0", "vxlan0", "tap0", "pod1"})).Draw(t, "names")
				state.FrontendIfs, state.BackendIfs = renderer.NewInterfaces(names...), renderer.NewInterfaces(names...)
				_ = r.UpdateLocalFrontendIfs(nil, state.FrontendIfs.Copy())
				_ = r.UpdateLocalBackendIfs(nil, state.BackendIfs.Copy())
			},
			"resync": func(t *rapid.T) { delete(now, name(t)); _ = r.Resync(resyncOf(state, now)) },
			"": func(t *rapid.T) {
				fresh := book{}
				f := New(cfg, fresh)
				_ = f.UpdateNode(n)
				_ = f.Resync(resyncOf(state, now))
				if diff := cmp.Diff(fresh, b); diff != "" {
					t.Fatalf("-resync +incremental\n%s", diff)
				}
			},
		})
	})
}

func resyncOf(state *renderer.ResyncEventData, now map[string]*renderer.ContivService) *renderer.ResyncEventData {
	ev := &renderer.ResyncEventData{NodeIPs: state.NodeIPs.Copy(), FrontendIfs: state.FrontendIfs.Copy(), BackendIfs: state.BackendIfs.Copy()}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		ev.Services = append(ev.Services, now[name])
	}
	return ev
}

// The same facts in any order give the same bytes.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := drawService(t, "1")
		two := *one
		two.Backends = map[string][]*renderer.ServiceBackend{}
		for _, port := range slices.Backward(slices.Sorted(maps.Keys(one.Backends))) {
			two.Backends[port] = rapid.Permutation(one.Backends[port]).Draw(t, "order")
		}
		n, ips, cfg := drawNode(t), drawNodeIPs(t), drawConfig(t)
		if diff := cmp.Diff(lines(Service(one, n, ips, cfg)), lines(Service(&two, n, ips, cfg))); diff != "" {
			t.Fatalf("order matters\n%s", diff)
		}
	})
}

// Every translation ever rendered keeps to what VPP survives: paths there are, of its family, and the address is a real one.
func TestEveryTranslationIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		values, _ := Service(drawService(t, "1"), drawNode(t), drawNodeIPs(t), cfg)
		for key, m := range values {
			tr, is := m.(*cnat.Translation)
			if !is {
				continue
			}
			vip := netip.MustParseAddr(tr.Vip.Address)
			if len(tr.Paths) == 0 || len(tr.Paths) > maxPaths || !tr.RealAddress || !cfg.serves(vip) || tr.Protocol == cnat.Protocol_SCTP && vip.Is6() {
				t.Errorf("%s: %v", key, tr)
			}
			for _, p := range tr.Paths {
				if netip.MustParseAddr(p.Destination.Address).Is6() != vip.Is6() {
					t.Errorf("%s: %v", key, p)
				}
			}
		}
	})
}

// Where node ports are may change alone: when another address of the node comes first.
func TestRendererNodePortAddresses(t *testing.T) {
	b := book{}
	r := New(v6, b)
	n := node()
	_ = r.UpdateNode(n)
	_ = r.AddService(web(endpoints(oneHere), nodePort))
	_ = r.UpdateNodePortServices(nodeIPs, nil)
	has := func() bool {
		return slices.ContainsFunc(b["cnat/service/default/web"], func(s string) bool { return strings.Contains(s, "30080") })
	}
	if !has() {
		t.Errorf("no node port: %v", b)
	}
	n.NoNodePorts = n.IPs
	if _ = r.UpdateNode(n); has() {
		t.Errorf("node ports where none are served: %v", b)
	}
	n.NoNodePorts = nil
	if _ = r.UpdateNode(n); !has() {
		t.Errorf("no node port again: %v", b)
	}
}
