package nat44

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

	"github.com/contiv-agent/contiv-agent/keyed"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/model/svcmodel"
	"github.com/contiv-agent/contiv-agent/pure"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// book is a sink that keeps what it was told as text.
type book map[string][]string

func (b book) Set(owner string, values map[string]proto.Message, notes []model.Note) {
	if len(values) == 0 && len(notes) == 0 {
		delete(b, owner)
		return
	}
	var text []string
	for _, key := range keyed.Values(values).Keys() {
		text = append(text, keyed.Format(key, values[key]))
	}
	b[owner] = append(text, lines(nil, notes)...)
}

func TestRendererOwners(t *testing.T) {
	b := book{}
	r := New(Config{}, b)
	_ = r.UpdateNode(node())
	_ = r.AddService(web(endpoints("10.1.1.2")))
	if got := slices.Sorted(maps.Keys(b)); !slices.Equal(got, []string{"nat44/node", "nat44/service/default/web"}) {
		t.Errorf("owners %v", got)
	}
	_ = r.DeleteService(web(), nil)
	if got := slices.Sorted(maps.Keys(b)); !slices.Equal(got, []string{"nat44/node"}) {
		t.Errorf("owners after delete %v", got)
	}
}

func drawService(t *rapid.T, name string) *renderer.ContivService {
	ips := rapid.SliceOfN(rapid.SampledFrom([]string{"10.1.1.2", "10.1.1.3", "10.1.2.2", "192.168.16.2", "fd00:1::2"}), 0, 4)
	svc := renderer.NewContivService()
	svc.ID = svcmodel.ID{Namespace: "default", Name: name}
	svc.TrafficPolicy = renderer.TrafficPolicyType(rapid.IntRange(0, 1).Draw(t, "policy"))
	svc.InternalTrafficPolicy = renderer.TrafficPolicyType(rapid.IntRange(0, 1).Draw(t, "internal"))
	svc.SessionAffinityTimeout = rapid.SampledFrom([]uint32{0, 600}).Draw(t, "affinity")
	svc.ClusterIPs.Add(net.ParseIP("10.96.0." + name))
	for _, ip := range rapid.SliceOfN(rapid.SampledFrom([]string{"203.0.113.7", "192.168.16.1", "192.168.16.3", "fd00::7"}), 0, 3).Draw(t, "external") {
		svc.ExternalIPs.Add(net.ParseIP(ip))
	}
	for _, port := range []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(t, "ports")] {
		svc.Ports[port] = &renderer.ServicePort{
			Protocol: rapid.SampledFrom([]renderer.ProtocolType{renderer.TCP, renderer.UDP, renderer.SCTP}).Draw(t, "protocol"),
			Port:     rapid.Uint16Range(1, 4).Draw(t, "port"), NodePort: rapid.Uint16Range(0, 2).Draw(t, "node port"),
		}
		for _, ip := range ips.Draw(t, "endpoints") {
			svc.Backends[port] = append(svc.Backends[port], &renderer.ServiceBackend{IP: net.ParseIP(ip), Port: 8080, Local: ip[:6] == "10.1.1"})
		}
	}
	return svc
}

func drawNode(t *rapid.T) renderer.NodeState {
	n := node()
	if rapid.Bool().Draw(t, "no loopback") {
		n.Loopback = netip.Addr{}
	}
	if rapid.Bool().Draw(t, "other address") {
		n.IPs = []netip.Addr{netip.MustParseAddr("192.168.16.3")}
	}
	if rapid.Bool().Draw(t, "no overlay") {
		n.Overlay = ""
	}
	return n
}

func drawNodeIPs(t *rapid.T) *renderer.IPAddresses {
	set := renderer.NewIPAddresses()
	all := []string{"192.168.16.1", "192.168.16.2", "192.168.16.3", "10.96.0.1", "203.0.113.7"}
	for _, ip := range rapid.SliceOf(rapid.SampledFrom(all)).Draw(t, "node IPs") {
		set.Add(net.ParseIP(ip))
	}
	return set
}

// Whatever the calls were, the sink has what one Resync of the final state gives.
func TestIncrementalIsResync(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			state = renderer.NewResyncEventData()
			now   = map[string]*renderer.ContivService{}
			n     renderer.NodeState
			b     = book{}
			r     = New(Config{}, b)
		)
		t.Repeat(map[string]func(*rapid.T){
			"service": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "name")
				svc := drawService(t, name)
				switch old := now[name]; {
				case old == nil:
					_ = r.AddService(svc)
				default:
					_ = r.UpdateService(old, svc, nil)
				}
				now[name] = svc
			},
			"delete": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "name")
				if old := now[name]; old != nil {
					_ = r.DeleteService(old, nil)
					delete(now, name)
				}
			},
			"node": func(t *rapid.T) { n = drawNode(t); _ = r.UpdateNode(n) },
			"node IPs": func(t *rapid.T) {
				state.NodeIPs = drawNodeIPs(t)
				_ = r.UpdateNodePortServices(state.NodeIPs.Copy(), nil)
			},
			"interfaces": func(t *rapid.T) {
				names := rapid.SliceOf(rapid.SampledFrom([]string{"eth0", "vxlan0", "tap1"})).Draw(t, "names")
				state.FrontendIfs = renderer.NewInterfaces(names...)
				state.BackendIfs = renderer.NewInterfaces(names...)
				_ = r.UpdateLocalFrontendIfs(nil, state.FrontendIfs.Copy())
				_ = r.UpdateLocalBackendIfs(nil, state.BackendIfs.Copy())
			},
			"resync": func(t *rapid.T) {
				other := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "name")
				delete(now, other)
				_ = r.Resync(resyncOf(state, now))
			},
			"": func(t *rapid.T) {
				fresh := book{}
				f := New(Config{}, fresh)
				_ = f.UpdateNode(n)
				_ = f.Resync(resyncOf(state, now))
				got := maps.Clone(b)
				if _, told := got[pure.NodeOwner(Name)]; !told {
					delete(fresh, pure.NodeOwner(Name))
				}
				if diff := cmp.Diff(fresh, got); diff != "" {
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
		n, ips := drawNode(t), drawNodeIPs(t)
		a, b := book{}, book{}
		v, notes := Service(one, n, ips, Config{LocalEndpointWeight: 3})
		a.Set("", v, notes)
		v, notes = Service(&two, n, ips, Config{LocalEndpointWeight: 3})
		b.Set("", v, notes)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("order matters\n%s", diff)
		}
	})
}

// Every mapping ever rendered keeps to what VPP survives.
func TestEveryMappingIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		svc := drawService(t, "1")
		values, _ := Service(svc, drawNode(t), drawNodeIPs(t), Config{LocalEndpointWeight: rapid.Byte().Draw(t, "weight")})
		checkSafe(t, values)
	})
}

// Where node ports are may change alone: when another address of the node comes first.
func TestRendererNodePortAddresses(t *testing.T) {
	b := book{}
	r := New(Config{}, b)
	n := node()
	_ = r.UpdateNode(n)
	_ = r.AddService(web(endpoints("10.1.1.2"), func(svc *renderer.ContivService) { svc.Ports["http"].NodePort = 30080 }))
	_ = r.UpdateNodePortServices(nodeIPs, nil)
	has := func() bool {
		return slices.ContainsFunc(b["nat44/service/default/web"], func(s string) bool { return strings.Contains(s, "30080") })
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
