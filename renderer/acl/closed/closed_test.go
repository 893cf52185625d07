package closed

import (
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// all denies packets from every pod to every pod, and every pod sends from its addresses.
type all struct{}

func (all) Denies(*endpoint.Iface, *endpoint.Program) bool { return true }
func (all) SendsOwn(*endpoint.Iface) bool                  { return true }

var receiver, sending = netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.1.2")

func tcpTo(port int32, net string, egress bool) *felix.Rule {
	r := &felix.Rule{Action: "allow", Protocol: &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "tcp"}}, DstPorts: []*felix.PortRange{{First: port, Last: port}}}
	if r.SrcNet = []string{net}; egress {
		r.SrcNet, r.DstNet = nil, []string{net}
	}
	return r
}

// world returns a closed pod that admits port 80 of the pods and dials port 443 of them, a pod without policies, and the refuser.
func world() (*endpoint.Pods, *Refuser) {
	n := &node.Node{Node: dataplane.Node{
		View4: dataplane.PreDNAT, Interfaces: map[netip.Addr]string{receiver: "if-1", sending: "if-2"}, Frontends: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}}
	w := endpoint.World{Node: n, Sets: match.Sets{}, Book: policy.NewBook(), Store: table.NewStore(), Notes: note.NewBook()}
	w.Segs = table.NewSegments(w.Store, w.Sets, w.Notes, table.MaxRules)
	w.Book.OnUpdate(&felix.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &felix.ActivePolicyUpdate{
		Id:     &felix.PolicyID{Tier: "a", Name: "a1"},
		Policy: &felix.Policy{InboundRules: []*felix.Rule{tcpTo(80, "10.1.1.0/24", false)}, OutboundRules: []*felix.Rule{tcpTo(443, "10.1.1.0/24", true)}},
	}})
	w.Book.OnUpdate(&felix.ToDataplane_ActiveProfileUpdate{ActiveProfileUpdate: &felix.ActiveProfileUpdate{
		Id: &felix.ProfileID{Name: "open"}, Profile: &felix.Profile{InboundRules: []*felix.Rule{{Action: "allow"}}, OutboundRules: []*felix.Rule{{Action: "allow"}}},
	}})
	pods := endpoint.New(w)
	for name, e := range map[string]*felix.WorkloadEndpoint{
		"p1": {Ipv4Nets: []string{"10.1.1.1/32"}, Tiers: []*felix.TierInfo{{Name: "a", IngressPolicies: []string{"a1"}, EgressPolicies: []string{"a1"}}}},
		"p2": {Ipv4Nets: []string{"10.1.1.2/32"}, ProfileIds: []string{"open"}},
	} {
		e.State = "active"
		pods.PutWorkload(endpoint.NewWorkload(endpoint.ID{Workload: name}, e))
	}
	pods.Locate()
	pods.Refresh(func(s policy.Steps) policy.Steps { return s })
	g := New(pods, lists.NewPacks(w.Store, w.Segs, 255), all{}, all{}, budget.Limits{})
	g.Evaluate()
	w.Segs.Compile(false, func(*table.Segment, func(*match.Clause, string, ...any)) []netip.Prefix { return nil }, func(*table.Segment, bool) {})
	return pods, g
}

// denied reports whether a list denies a TCP packet before it permits it.
func denied(s *table.Store, list []lists.Place, src, dst netip.Addr, sport, dport uint16) bool {
	for _, p := range list {
		for _, a := range s.Lookup(p.Table).Rules {
			if a.Src.Contains(src) && a.Dst.Contains(dst) && (a.Proto == 0 || a.Proto == match.TCP) && a.SrcPorts.Lo <= sport && sport <= a.SrcPorts.Hi && a.DstPorts.Lo <= dport && dport <= a.DstPorts.Hi {
				return a.Verb == match.Deny
			}
		}
	}
	return false
}

// TestOnlyInvitedPacketsEnter: to a closed pod pass what its ingress admits, and answers that its egress admits; from a local pod and from elsewhere.
func TestOnlyInvitedPacketsEnter(t *testing.T) {
	pods, g := world()
	outside := netip.MustParseAddr("10.1.1.77")
	served, named, last := g.InvitedPlaces(100)
	for _, c := range []struct {
		sport, dport uint16
		denied       bool
	}{{40000, 80, false}, {40000, 81, true}, {443, 40000, false}, {444, 40000, true}} {
		if got := denied(pods.Store, g.Places(pods.At(sending)), sending, receiver, c.sport, c.dport); got != c.denied {
			t.Errorf("from a pod, port %d to %d is denied: %v", c.sport, c.dport, got)
		}
		if got := denied(pods.Store, append(append(served, named...), last...), outside, receiver, c.sport, c.dport); got != c.denied {
			t.Errorf("from elsewhere, port %d to %d is denied: %v", c.sport, c.dport, got)
		}
	}
	if list := g.Places(pods.At(sending)); len(list) != 1 || !list[0].Repeats {
		t.Errorf("places %v", list)
	}
	if g.Empty() || len(g.NotesLeftOut()) > 0 {
		t.Error("the invitation is left out")
	}
}

// TestLastInvitationMoves: the last invitation has another place in lists, so they change with it even if its tables do not.
func TestLastInvitationMoves(t *testing.T) {
	pods, g := world()
	v := *g.inOrder()[0]
	none := closedPods{key: v.key, in: &endpoint.Program{}, out: &endpoint.Program{}}
	v.closedPods, v.segs = &none, nil
	for _, last := range []bool{false, false, true} {
		was := v.last
		v.choose(last, false)
		pods.Leaving = false
		if g.writeInvitation(&v); pods.Leaving != (was != last) || len(v.segs) > 0 {
			t.Errorf("last %v after %v: lists change: %v, %d tables", last, was, pods.Leaving, len(v.segs))
		}
	}
}

// TestForgetIface: without a sender its table is removed.
func TestForgetIface(t *testing.T) {
	pods, g := world()
	i := pods.At(sending)
	name := g.Places(i)[0].Table
	if of, ok := g.Cause(i, name, 0, &dataplane.Cause{}); !ok || of != receiver {
		t.Errorf("the first rule is for %s, %v", of, ok)
	}
	g.ForgetIface(i)
	g.ForgetIface(pods.At(receiver))
	if pods.Store.Fixed(name) != nil || !pods.Senders {
		t.Error("the table remains, or nothing is evaluated again")
	}
}

// TestUninvited: of the denied packets those remain whose exchanged ports are denied as well, and the largest of too many.
func TestUninvited(t *testing.T) {
	one := func(sport, dport match.Span) denial.Rect {
		return denial.Rect{Proto: match.TCP, Sport: sport, Dport: dport}
	}
	low := match.Span{Lo: 0, Hi: 1023}
	got := uninvited([]denial.Rect{one(match.AllPorts, low)}, []denial.Rect{one(match.AllPorts, match.Span{Lo: 443, Hi: 443})})
	if len(got) != 1 || got[0] != one(match.Span{Lo: 443, Hi: 443}, low) {
		t.Errorf("%+v", got)
	}
	var many []denial.Rect
	for n := range uint16(mostRects + 1) {
		many = append(many, one(match.AllPorts, match.Span{Lo: 3 * n, Hi: 3*n + min(n, 1)}))
	}
	got = uninvited(many, []denial.Rect{one(match.AllPorts, match.AllPorts)})
	if len(got) != mostRects || got[mostRects-1].Size() != 2*65536 {
		t.Errorf("%d rects, the last has %d pairs of ports", len(got), got[len(got)-1].Size())
	}
}
