package outer

import (
	"iter"
	"maps"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// senders has programs with one source.
type senders map[*endpoint.Program]netip.Addr

func (s senders) Programs() iter.Seq[*endpoint.Program] { return maps.Keys(s) }

func (s senders) Sources(p *endpoint.Program) []netip.Addr {
	if a, ok := s[p]; ok {
		return []netip.Addr{a}
	}
	return nil
}

var pod, dialled = netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("192.168.0.1")

// dialling returns a pod that may reach one network, and the evaluator of a Service at an outer address with this backend.
func dialling(may, backend string, hides bool) (*Evaluator, *endpoint.Iface) {
	n := &node.Node{Node: dataplane.Node{
		Interfaces: map[netip.Addr]string{pod: "if-1"}, Hairpin: []netip.Addr{netip.MustParseAddr("10.1.1.254")},
		Outer: []dataplane.Outer{{Addr: dialled, Proto: match.TCP, Port: 80, Hides: hides, Backends: []netip.AddrPort{netip.MustParseAddrPort(backend)}}},
	}}
	n.View4 = dataplane.PreDNAT
	w := endpoint.World{Node: n, Sets: match.Sets{}, Book: policy.NewBook(), Store: table.NewStore(), Notes: note.NewBook()}
	w.Segs = table.NewSegments(w.Store, w.Sets, w.Notes, table.MaxRules)
	for _, t := range n.Tables() {
		w.Store.Fix(t)
	}
	w.Book.OnUpdate(&felix.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &felix.ActivePolicyUpdate{
		Id: &felix.PolicyID{Tier: "a", Name: "a1"}, Policy: &felix.Policy{OutboundRules: []*felix.Rule{{Action: "allow", DstNet: []string{may}}}},
	}})
	pods := endpoint.New(w)
	pods.PutWorkload(endpoint.NewWorkload(endpoint.ID{Workload: "p1"}, &felix.WorkloadEndpoint{
		State: "active", Ipv4Nets: []string{pod.String() + "/32"}, Tiers: []*felix.TierInfo{{Name: "a", EgressPolicies: []string{"a1"}}},
	}))
	pods.Locate()
	pods.Refresh(func(s policy.Steps) policy.Steps { return s })
	i := pods.At(pod)
	g := New(pods, senders{i.Progs[1]: pod})
	pods.Outer = true
	g.Expose()
	g.Evaluate(nil)
	return g, i
}

// TestBackendsDecide: a dialled address that hides its clients is open if the pod may reach the backends, whatever the policy says about the address.
func TestBackendsDecide(t *testing.T) {
	for _, c := range []struct {
		may, backend string
		hides        bool
		want         string
	}{
		{"10.1.2.0/24", "10.1.2.1:8080", true, table.Led},
		{"192.168.0.0/16", "10.1.2.1:8080", true, table.Barred},
		{"10.1.3.0/24", "10.1.2.1:8080", true, ""}, // the program denies the address anyway
		{"10.1.3.0/24", "10.1.2.1:8080", false, table.KeptOuter},
	} {
		g, i := dialling(c.may, c.backend, c.hides)
		list := g.Places(i.Progs[1])
		got := ""
		for _, kind := range []string{table.Led, table.Barred, table.KeptOuter} {
			if len(list) == 1 && (list[0].Table == kind || list[0].Table == outerTable(kind, i.Progs[1])) {
				got = kind
			}
		}
		if got != c.want {
			t.Errorf("%+v: %v", c, list)
		}
	}
}

// TestExposedPort: a pod's path to itself through a Service is open, except at the ports that hidden clients reach.
func TestExposedPort(t *testing.T) {
	g, i := dialling("10.1.0.0/16", "10.1.1.1:8080", true)
	list := g.Hairpins(i)
	if len(list) != 1 || list[0].Table != hairpinTable("if-1") {
		t.Fatalf("%v", list)
	}
	for _, a := range g.pods.Store.Fixed(list[0].Table).Rules {
		if a.Proto == match.TCP && a.DstPorts.Lo <= 8080 && 8080 <= a.DstPorts.Hi {
			t.Errorf("port 8080 is open: %v", a)
		}
	}
	g.ForgetIface(i)
	if g.pods.Store.Fixed(hairpinTable("if-1")) != nil {
		t.Error("the table remains")
	}
}
