package adapter

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// recordingSink is a sink that records the values and notes of each owner as text.
type recordingSink map[string]string

func (b recordingSink) Set(owner string, _ map[string]proto.Message, notes []model.Note) {
	delete(b, owner)
	for _, n := range notes {
		b[owner] += n.Reason
	}
}

// describingFunctions returns functions whose values describe their arguments.
func describingFunctions() Functions {
	return Functions{
		Name: "test",
		Service: func(svc *renderer.ContivService, node renderer.NodeState, nodeIPs *renderer.IPAddresses) (kv.Values, []model.Note) {
			return nil, []model.Note{{Reason: svc.ID.Name + " on " + node.Name + " of " + nodeIPs.String()}}
		},
		Node: func(node renderer.NodeState, nodeIPs *renderer.IPAddresses, frontends, backends renderer.Interfaces) (kv.Values, []model.Note) {
			return nil, []model.Note{{Reason: node.Name + " of " + nodeIPs.String() + frontends.String() + backends.String()}}
		},
		NodeMatters: func(old, now renderer.NodeState) bool { return old.Name != now.Name },
	}
}

func newService(name string, change ...func(*renderer.ContivService)) *renderer.ContivService {
	svc := renderer.NewContivService()
	svc.ID = model.ServiceID{Namespace: "default", Name: name}
	for _, f := range change {
		f(svc)
	}
	return svc
}

// Portions together give the values of one resync, and the node's values precede the first portion.
func TestPortionsEqualOneResync(t *testing.T) {
	ev := renderer.NewResyncEventData()
	for i := range 2*portion + 1 {
		ev.Services = append(ev.Services, newService(strconv.Itoa(i)))
	}
	whole, b := recordingSink{}, recordingSink{}
	for sink, resync := range map[*recordingSink]func(*Renderer) error{
		&whole: func(r *Renderer) error { return r.Resync(ev) },
		&b: func(r *Renderer) error {
			portions, err := r.ResyncInPortions(ev)
			got := slices.Sorted(maps.Keys(b))
			if !slices.Equal(got, []string{"test/node"}) || len(portions) != 3 {
				t.Errorf("%d portions after %v", len(portions), got)
			}
			for _, do := range portions {
				before := len(b)
				if do(); len(b) > before+portion {
					t.Errorf("a portion of %d services", len(b)-before)
				}
			}
			return err
		},
	} {
		r := New(describingFunctions(), *sink)
		_ = r.UpdateNode(renderer.NodeState{Name: "node-1"})
		_ = r.AddService(newService("gone"))
		if err := resync(r); err != nil {
			t.Fatal(err)
		}
		if _, stays := (*sink)["test/service/default/gone"]; stays {
			t.Error("what is gone stays")
		}
	}
	if diff := cmp.Diff(whole, b); diff != "" || len(whole) != len(ev.Services)+1 {
		t.Errorf("%d owners, whole and portions:\n%s", len(whole), diff)
	}
}

// A change renders only what it can affect.
func TestChangeRendersOnlyWhatItAffects(t *testing.T) {
	ip := func(s string) func(*renderer.ContivService) {
		return func(svc *renderer.ContivService) { svc.ExternalIPs.Add(net.ParseIP(s)) }
	}
	nodePort := func(svc *renderer.ContivService) { svc.Ports["x"] = &renderer.ServicePort{NodePort: 30080} }
	local := func(svc *renderer.ContivService) { svc.TrafficPolicy = renderer.NodeLocal }
	all := []*renderer.ContivService{
		newService("external", ip("192.168.16.2")), newService("local", nodePort, local), newService("plain", ip("203.0.113.7"), local), newService("port", nodePort),
	}
	node := renderer.NodeState{Name: "node-1", IPs: []netip.Addr{netip.MustParseAddr("192.168.16.1")}}
	nodes := func(ips ...string) func(*Renderer) error {
		set := renderer.NewIPAddresses()
		for _, s := range ips {
			set.Add(net.ParseIP(s))
		}
		return func(r *Renderer) error { return r.UpdateNodePortServices(set, nil) }
	}
	for _, tc := range []struct {
		name string
		do   func(*Renderer) error
		want []string
	}{
		{"an address of another node is added", nodes("192.168.16.2"), []string{"external"}},
		{"this node's address is added", nodes("192.168.16.1"), []string{"local", "port"}},
		{"no address changes", nodes(), nil},
		{"a field of the node that matters", func(r *Renderer) error { return r.UpdateNode(renderer.NodeState{Name: "other"}) }, []string{"NODE", "external", "local", "plain", "port"}},
		{"a field of the node that does not matter", func(r *Renderer) error { return r.UpdateNode(renderer.NodeState{Name: "node-1", Uplink: "eth0"}) }, []string{"NODE"}},
		{"frontend interfaces change", func(r *Renderer) error { return r.UpdateLocalFrontendIfs(nil, renderer.NewInterfaces("tap0")) }, []string{"NODE"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			functions := describingFunctions()
			service, ofNode := functions.Service, functions.Node
			functions.Service = func(svc *renderer.ContivService, node renderer.NodeState, ips *renderer.IPAddresses) (kv.Values, []model.Note) {
				got = append(got, svc.ID.Name)
				return service(svc, node, ips)
			}
			functions.Node = func(node renderer.NodeState, ips *renderer.IPAddresses, f, b renderer.Interfaces) (kv.Values, []model.Note) {
				got = append(got, "NODE")
				return ofNode(node, ips, f, b)
			}
			r := New(functions, recordingSink{})
			_ = r.UpdateNode(node)
			_ = r.Resync(&renderer.ResyncEventData{NodeIPs: renderer.NewIPAddresses(), Services: all})
			got = nil
			_ = tc.do(r)
			if slices.Sort(got); !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// While no service concerns the renderer, the node has no values.
func TestNodeIsRenderedOnlyForConcernedServices(t *testing.T) {
	functions := describingFunctions()
	functions.Concerns, functions.NodeIPs = func(svc *renderer.ContivService) bool { return svc.HasNodePort() }, true
	b := recordingSink{}
	r := New(functions, b)
	check := func(when string, want bool) {
		t.Helper()
		if _, got := b["test/node"]; got != want {
			t.Errorf("%s: a node %t, want %t", when, got, want)
		}
	}
	with := func(svc *renderer.ContivService) { svc.Ports["x"] = &renderer.ServicePort{NodePort: 30080} }
	_ = r.UpdateNode(renderer.NodeState{Name: "node-1"})
	_ = r.AddService(newService("a"))
	check("no service concerns it", false)
	_ = r.AddService(newService("b", with))
	check("one service concerns it", true)
	_ = r.UpdateNodePortServices(renderer.NewIPAddresses(net.IPv4(192, 168, 16, 2)), nil)
	if want := "node-1 of [192.168.16.2][][]"; b["test/node"] != want {
		t.Errorf("node %q", b["test/node"])
	}
	_ = r.UpdateService(nil, newService("b"), nil)
	check("the service no longer concerns it", false)
	_ = r.Resync(&renderer.ResyncEventData{NodeIPs: renderer.NewIPAddresses(), Services: []*renderer.ContivService{newService("a"), newService("c", with)}})
	check("resync", true)
	_ = r.DeleteService(newService("c"), nil)
	check("deleted", false)
}
