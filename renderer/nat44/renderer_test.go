package nat44

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/adapter/adaptertest"
)

// book is a sink that keeps its values as text.
type book map[string][]string

func (b book) Set(owner string, values map[string]proto.Message, notes []model.Note) {
	if len(values) == 0 && len(notes) == 0 {
		delete(b, owner)
		return
	}
	var text []string
	for _, key := range kv.Values(values).Keys() {
		text = append(text, kv.Format(key, values[key]))
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

var world = adaptertest.World{
	Cluster:    func(name string) []string { return []string{"10.96.0." + name} },
	External:   []string{"203.0.113.7", "192.168.16.1", "192.168.16.3", "fd00::7"},
	Endpoints:  []string{"10.1.1.2", "10.1.1.3", "10.1.2.2", "192.168.16.2", "fd00:1::2"},
	Local:      func(ip string) bool { return strings.HasPrefix(ip, "10.1.1.") },
	NodeIPs:    []string{"192.168.16.1", "192.168.16.2", "192.168.16.3", "10.96.0.1", "203.0.113.7"},
	Interfaces: []string{"eth0", "vxlan0", "tap1"},
	Node:       drawNode,
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

// After any sequence of calls, the sink has what one Resync of the final state gives.
func TestIncrementalIsResync(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		adaptertest.IncrementalIsResync(t, world, func() (adaptertest.Renderer, map[string][]string) {
			b := book{}
			return New(Config{}, b), b
		})
	})
}

// The same facts in any order give the same bytes.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		svc, n, ips := world.Service(t, "1"), drawNode(t), world.Addresses(t)
		a, b := book{}, book{}
		values, notes := Service(svc, n, ips, Config{LocalEndpointWeight: 3})
		a.Set("", values, notes)
		values, notes = Service(adaptertest.Shuffled(t, svc), n, ips, Config{LocalEndpointWeight: 3})
		b.Set("", values, notes)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("order matters\n%s", diff)
		}
	})
}

// Every rendered mapping is one that VPP survives.
func TestEveryMappingIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		svc := world.Service(t, "1")
		values, _ := Service(svc, drawNode(t), world.Addresses(t), Config{LocalEndpointWeight: rapid.Byte().Draw(t, "weight")})
		checkSafe(t, values)
	})
}

// The address of node ports may change alone: when another address of the node becomes the first.
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
