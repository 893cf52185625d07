package pure

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/keyed"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/model/svcmodel"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// book is a sink that keeps what was said of each owner.
type book map[string]string

func (b book) Set(owner string, _ map[string]proto.Message, notes []model.Note) {
	delete(b, owner)
	for _, n := range notes {
		b[owner] += n.Reason
	}
}

// said are functions that say what they were given.
func said() Functions {
	return Functions{
		Name: "test",
		Service: func(svc *renderer.ContivService, node renderer.NodeState, nodeIPs *renderer.IPAddresses) (keyed.Values, []model.Note) {
			return nil, []model.Note{{Reason: svc.ID.Name + " on " + node.Name + " of " + nodeIPs.String()}}
		},
		Node: func(node renderer.NodeState, nodeIPs *renderer.IPAddresses, frontends, backends renderer.Interfaces) (keyed.Values, []model.Note) {
			return nil, []model.Note{{Reason: node.Name + " of " + nodeIPs.String() + frontends.String() + backends.String()}}
		},
		NodeMatters: func(old, now renderer.NodeState) bool { return old.Name != now.Name },
	}
}

func named(name string, change ...func(*renderer.ContivService)) *renderer.ContivService {
	svc := renderer.NewContivService()
	svc.ID = svcmodel.ID{Namespace: "default", Name: name}
	for _, f := range change {
		f(svc)
	}
	return svc
}

// TestPortionsAreTheResync: together they say the same, and what services stand on is there before the first.
func TestPortionsAreTheResync(t *testing.T) {
	ev := renderer.NewResyncEventData()
	for i := range 2*portion + 1 {
		ev.Services = append(ev.Services, named(strconv.Itoa(i)))
	}
	whole, b := book{}, book{}
	for sink, resync := range map[*book]func(*Renderer) error{
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
		r := New(said(), *sink)
		_ = r.UpdateNode(renderer.NodeState{Name: "node-1"})
		_ = r.AddService(named("gone"))
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

// Nothing is rendered again but what the change can matter to.
func TestWhatIsRenderedAgain(t *testing.T) {
	ip := func(s string) func(*renderer.ContivService) {
		return func(svc *renderer.ContivService) { svc.ExternalIPs.Add(net.ParseIP(s)) }
	}
	nodePort := func(svc *renderer.ContivService) { svc.Ports["x"] = &renderer.ServicePort{NodePort: 30080} }
	local := func(svc *renderer.ContivService) { svc.TrafficPolicy = renderer.NodeLocal }
	all := []*renderer.ContivService{
		named("external", ip("192.168.16.2")), named("local", nodePort, local), named("plain", ip("203.0.113.7"), local), named("port", nodePort),
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
		{"another node", nodes("192.168.16.2"), []string{"external", "local"}},
		{"this node", nodes("192.168.16.1"), []string{"local", "port"}},
		{"no address", nodes(), []string{"local"}},
		{"what matters of the node", func(r *Renderer) error { return r.UpdateNode(renderer.NodeState{Name: "other"}) }, []string{"NODE", "external", "local", "plain", "port"}},
		{"what does not", func(r *Renderer) error { return r.UpdateNode(renderer.NodeState{Name: "node-1", Uplink: "eth0"}) }, []string{"NODE"}},
		{"interfaces", func(r *Renderer) error { return r.UpdateLocalFrontendIfs(nil, renderer.NewInterfaces("tap0")) }, []string{"NODE"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			does := said()
			service, ofNode := does.Service, does.Node
			does.Service = func(svc *renderer.ContivService, node renderer.NodeState, ips *renderer.IPAddresses) (keyed.Values, []model.Note) {
				got = append(got, svc.ID.Name)
				return service(svc, node, ips)
			}
			does.Node = func(node renderer.NodeState, ips *renderer.IPAddresses, f, b renderer.Interfaces) (keyed.Values, []model.Note) {
				got = append(got, "NODE")
				return ofNode(node, ips, f, b)
			}
			r := New(does, book{})
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

// Without a service that concerns the renderer, there is nothing of the node.
func TestConcerns(t *testing.T) {
	does := said()
	does.Concerns, does.NodeIPs = func(svc *renderer.ContivService) bool { return svc.HasNodePort() }, true
	b := book{}
	r := New(does, b)
	check := func(when string, want bool) {
		t.Helper()
		if _, got := b["test/node"]; got != want {
			t.Errorf("%s: a node %t, want %t", when, got, want)
		}
	}
	with := func(svc *renderer.ContivService) { svc.Ports["x"] = &renderer.ServicePort{NodePort: 30080} }
	_ = r.UpdateNode(renderer.NodeState{Name: "node-1"})
	_ = r.AddService(named("a"))
	check("none concerns", false)
	_ = r.AddService(named("b", with))
	check("one does", true)
	_ = r.UpdateNodePortServices(renderer.NewIPAddresses(net.IPv4(192, 168, 16, 2)), nil)
	if want := "node-1 of [192.168.16.2][][]"; b["test/node"] != want {
		t.Errorf("node %q", b["test/node"])
	}
	_ = r.UpdateService(nil, named("b"), nil)
	check("it does no more", false)
	_ = r.Resync(&renderer.ResyncEventData{NodeIPs: renderer.NewIPAddresses(), Services: []*renderer.ContivService{named("a"), named("c", with)}})
	check("resync", true)
	_ = r.DeleteService(named("c"), nil)
	check("deleted", false)
}
