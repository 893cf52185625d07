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
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
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
	b[owner] = lines(values, notes)
}

// A cluster without Services of a served family has no values of cnat.
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
	v4only.ID = model.ServiceID{Namespace: "default", Name: "old"}
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

var world = adaptertest.World{
	Cluster:    func(name string) []string { return []string{"10.96.0." + name, "fd00:96::" + name} },
	External:   []string{"203.0.113.7", "2001:db8::7", "fd00:16::1", "fd00:16::3"},
	Endpoints:  []string{"10.1.1.2", "10.1.2.2", "fd00:1:1::2", "fd00:1:1::3", "fd00:1:2::2", "fd00:16::2"},
	Local:      func(ip string) bool { return ip == "10.1.1.2" || strings.HasPrefix(ip, "fd00:1:1:") },
	NodeIPs:    []string{"fd00:16::1", "fd00:16::2", "fd00:16::3", "fd00:96::1", "2001:db8::7"},
	Interfaces: []string{"eth0", "vxlan0", "tap0", "pod1"},
	Node:       drawNode,
}

func drawConfig(t *rapid.T) Config {
	families := rapid.SampledFrom([]Config{v6, both, {Families: renderer.Families{IPv4: true}}}).Draw(t, "families")
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

// After any sequence of calls, the sink has what one Resync of the final state gives.
func TestIncrementalIsResync(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		adaptertest.IncrementalIsResync(t, world, func() (adaptertest.Renderer, map[string][]string) {
			b := book{}
			return New(cfg, b), b
		})
	})
}

// The same facts in any order give the same bytes.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		svc, n, ips, cfg := world.Service(t, "1"), drawNode(t), world.Addresses(t), drawConfig(t)
		if diff := cmp.Diff(lines(Service(svc, n, ips, cfg)), lines(Service(adaptertest.Shuffled(t, svc), n, ips, cfg))); diff != "" {
			t.Fatalf("order matters\n%s", diff)
		}
	})
}

// Every rendered translation is one that VPP survives: it has paths of its family, and a real address.
func TestEveryTranslationIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		values, _ := Service(world.Service(t, "1"), drawNode(t), world.Addresses(t), cfg)
		for key, m := range values {
			tr, is := m.(*cnat.Translation)
			if !is {
				continue
			}
			vip := netip.MustParseAddr(tr.Vip.Address)
			if len(tr.Paths) == 0 || len(tr.Paths) > maxPaths || !tr.RealAddress || !cfg.Has(vip) || tr.Protocol == cnat.Protocol_SCTP && vip.Is6() {
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

// The address of node ports may change alone: when another address of the node becomes the first.
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
