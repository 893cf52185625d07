package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

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

func tcp() *felix.Protocol {
	return &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "tcp"}}
}

// atPods are rules whose result differs between local pods, or between their sources.
var atPods = []*felix.Rule{
	{DstNet: []string{"10.1.1.0/31", "10.1.1.2/32"}},
	{DstNet: []string{"10.1.1.1/32", "fd00:1::1/128"}},
	{DstNet: []string{"fd00:1::2/128"}},
	{NotDstNet: []string{"10.1.1.2/31"}},
	{DstIpSetIds: []string{"s1"}},
	{NotDstIpSetIds: []string{"s1"}},
	{DstIpSetIds: []string{"s1", "unheard-of"}},
	{Protocol: tcp(), DstNamedPortIpSetIds: []string{"n1"}},
	{Protocol: tcp(), NotDstNamedPortIpSetIds: []string{"n1"}},
	{Protocol: tcp(), DstIpPortSetIds: []string{"n1"}},
	{IpVersion: felix.IPVersion_IPV4},
	{SrcNet: []string{"10.1.1.1/32"}, DstNet: []string{"10.1.1.0/30"}},
	{Protocol: tcp(), DstPorts: []*felix.PortRange{{First: 80, Last: 80}}},
}

// world returns pods p1 to p4 with one policy for egress, and their evaluator. The families of a pod's addresses are drawn.
func world(t *rapid.T, rules []*felix.Rule) (*endpoint.Pods, *Evaluator) {
	views := []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT}
	n := &node.Node{Node: dataplane.Node{View4: dataplane.PreDNAT, View6: rapid.SampledFrom(views).Draw(t, "view of IPv6"), Interfaces: map[netip.Addr]string{}}}
	w := endpoint.World{Node: n, Sets: match.Sets{}, Book: policy.NewBook(), Store: table.NewStore(), Notes: note.NewBook()}
	w.Segs = table.NewSegments(w.Store, w.Sets, w.Notes, table.MaxRules)
	for id, s := range map[string]*felix.IPSetUpdate{
		"s1": {Type: felix.IPSetUpdate_NET, Members: []string{"10.1.1.2/31", "fd00:1::2/128"}},
		"n1": {Type: felix.IPSetUpdate_IP_AND_PORT, Members: []string{"10.1.1.1,tcp:80", "10.1.1.2,tcp:443", "fd00:1::1,tcp:80"}},
	} {
		s.Id = id
		w.Sets[id] = match.NewSet(s)
	}
	w.Book.OnUpdate(&felix.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &felix.ActivePolicyUpdate{
		Id: &felix.PolicyID{Tier: "a", Name: "a1"}, Policy: &felix.Policy{OutboundRules: rules},
	}})
	pods := endpoint.New(w)
	for k := 1; k <= 4; k++ {
		e := &felix.WorkloadEndpoint{State: "active", Tiers: []*felix.TierInfo{{Name: "a", EgressPolicies: []string{"a1"}}}}
		families := rapid.IntRange(0, 2).Draw(t, "families")
		if families != 1 {
			e.Ipv4Nets = []string{fmt.Sprintf("10.1.1.%d/32", k)}
		}
		if families != 0 {
			e.Ipv6Nets = []string{fmt.Sprintf("fd00:1::%d/128", k)}
		}
		for _, text := range slices.Concat(e.Ipv4Nets, e.Ipv6Nets) {
			n.Interfaces[netip.MustParsePrefix(text).Addr()] = fmt.Sprint("if-p", k)
		}
		pods.PutWorkload(endpoint.NewWorkload(endpoint.ID{Workload: fmt.Sprint("p", k)}, e))
	}
	pods.Locate()
	pods.Refresh(func(s policy.Steps) policy.Steps { return s })
	e := New(pods, lists.NewPacks(w.Store, w.Segs, 255), 255)
	e.Evaluate(e.Update(), false)
	return pods, e
}

// TestResiduesTakenOver: denials at a pod are copied from another pod only if they are equal. Pods with equal denials have equal tables.
func TestResiduesTakenOver(t *testing.T) {
	denied := 0
	rapid.Check(t, func(t *rapid.T) {
		var rules []*felix.Rule
		for range rapid.IntRange(1, 4).Draw(t, "rules") {
			r := proto.Clone(rapid.SampledFrom(atPods).Draw(t, "rule")).(*felix.Rule)
			r.Action = rapid.SampledFrom([]string{"allow", "deny"}).Draw(t, "action")
			rules = append(rules, r)
		}
		pods, e := world(t, rules)
		for p, j := range e.outbound {
			for _, i := range pods.Ifaces {
				got, want := e.target(i).residues[p], e.freshResidue(j, slices.Collect(p.Steps.Each), pods.Node.Early(nil, i.Addrs))
				if (got == nil) != (want == nil) || got != nil && got.sig != want.sig {
					t.Fatalf("%s: %+v, want %+v", i.Name, got, want)
				}
				if len(e.Places(i)) > 0 != e.Denies(i, p) {
					t.Fatalf("%s: denies %v, and has %d tables", i.Name, e.Denies(i, p), len(e.Places(i)))
				}
				if got != nil {
					denied++
				}
			}
		}
	})
	if denied == 0 && !testing.Short() { // fewer checks may have none
		t.Error("nothing was ever denied")
	}
}

// TestNoTableWithoutPod: the tables of a pod that exists no more are removed.
func TestNoTableWithoutPod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods, e := world(t, []*felix.Rule{{Action: "deny"}})
		names := map[string]bool{}
		for _, i := range pods.Ifaces {
			for _, at := range e.Places(i) {
				names[at.Table] = true
			}
		}
		for _, i := range pods.Ifaces {
			e.ForgetIface(i)
		}
		for name := range names {
			if pods.Store.Fixed(name) != nil {
				t.Fatalf("table %s remains", name)
			}
		}
		if len(names) == 0 && !e.Empty() {
			t.Fatal("a program denies everything, and no pod has a table")
		}
	})
}
