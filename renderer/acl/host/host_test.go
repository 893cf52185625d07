package host

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// world returns no endpoint of a node with uplink, overlay and host link, and a policy "h" that denies all in both directions.
func world() (*endpoint.Pods, *Endpoints) {
	n := &node.Node{Node: dataplane.Node{Uplink: "uplink", Overlay: "overlay", Host: "host", Addrs: []netip.Addr{netip.MustParseAddr("192.168.0.1")}}}
	w := endpoint.World{Node: n, Sets: match.Sets{}, Book: policy.NewBook(), Store: table.NewStore(), Notes: note.NewBook()}
	w.Segs = table.NewSegments(w.Store, w.Sets, w.Notes, table.MaxRules)
	w.Book.OnUpdate(&felix.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &felix.ActivePolicyUpdate{
		Id:     &felix.PolicyID{Tier: "a", Name: "h"},
		Policy: &felix.Policy{InboundRules: []*felix.Rule{{Action: "deny"}}, OutboundRules: []*felix.Rule{{Action: "deny", DstNet: []string{"10.9.0.0/16"}}}},
	}})
	pods := endpoint.New(w)
	return pods, New(pods, lists.NewPacks(w.Store, w.Segs, 255))
}

func put(g *Endpoints, id, iface string, e *felix.HostEndpoint) {
	e.Name = iface
	g.PutEndpoint(&felix.HostEndpointUpdate{Id: &felix.HostEndpointID{EndpointId: id}, Endpoint: e})
}

func tiers() []*felix.TierInfo {
	return []*felix.TierInfo{{Name: "a", IngressPolicies: []string{"h"}, EgressPolicies: []string{"h"}, DefaultAction: "Pass"}}
}

// TestFirstByNameCounts: of several endpoints the first by name is enforced at an interface, and one for all interfaces only where no other is.
func TestFirstByNameCounts(t *testing.T) {
	pods, g := world()
	put(g, "all", "*", &felix.HostEndpoint{})
	put(g, "two", "uplink", &felix.HostEndpoint{})
	put(g, "one", "", &felix.HostEndpoint{ExpectedIpv4Addrs: []string{"192.168.0.1"}}) // the uplink's
	put(g, "lost", "eth7", &felix.HostEndpoint{})
	g.Evaluate()
	at := map[string]string{}
	for _, name := range []string{"uplink", "overlay", "host"} {
		at[name] = g.Hook(name).Endpoint
	}
	if at["uplink"] != "one" || at["overlay"] != "all" || at["host"] != "one" || !g.Hook("host").Egress || g.HasExits() {
		t.Errorf("%v", at)
	}
	if pods.Hosts || !pods.Leaving || !g.Enforces() {
		t.Error("the marks are wrong")
	}
	for _, id := range []string{"all", "one", "two", "lost"} {
		g.RemoveEndpoint(id)
	}
	g.Evaluate()
	if g.Enforces() || !g.Empty() || g.Hook("uplink") != nil {
		t.Error("something remains")
	}
}

// TestExitsPrecedePrograms: a pod's program is behind what an endpoint denies to leave, and unchanged without endpoints.
func TestExitsPrecedePrograms(t *testing.T) {
	pods, g := world()
	open := policy.Steps{{Role: "own", Clauses: []match.Clause{{Verb: match.Allow, Cause: &dataplane.Cause{}}}}}
	if got := g.BehindExits(open); len(got) != 1 || !got.Opens() {
		t.Fatalf("%+v", got)
	}
	put(g, "one", "uplink", &felix.HostEndpoint{ForwardTiers: tiers()})
	g.FindExits()
	if g.Exit("uplink") == nil || g.Exit("uplink").Endpoint != "one" || g.Exit("overlay") != nil {
		t.Fatal("the exit is elsewhere")
	}
	got := g.BehindExits(open)
	denials := slices.IndexFunc(got, func(s policy.Step) bool { return s.Clauses[0].Verb == match.Deny })
	if denials < 0 || denials == len(got)-1 || got.Opens() {
		t.Errorf("%+v", got)
	}
	if c := got[denials].Clauses[0].Cause; !c.Host || c.Endpoint != "one" {
		t.Errorf("cause %+v", c)
	}
	g.RemoveEndpoint("one")
	g.FindExits()
	if g.HasExits() || !pods.Leaving {
		t.Error("the exit remains")
	}
}

// TestFewPlaces: the tables of an endpoint are joined if they are too many. The last one decides everything, and stays.
func TestFewPlaces(t *testing.T) {
	pods, g := world()
	for _, n := range pods.Node.Tables() {
		pods.Store.Fix(n)
	}
	put(g, "one", "uplink", &felix.HostEndpoint{Tiers: tiers(), ForwardTiers: tiers()})
	g.Evaluate()
	h := g.Hook("uplink")
	all, few := g.HookPlaces("uplink", h, 100), g.HookPlaces("uplink", h, 2)
	if len(all) < 3 || len(few) != 2 || few[1].Table != all[len(all)-1].Table {
		t.Errorf("%v joined to %v", all, few)
	}
}
