package endpoint

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

var first, second = netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.1.2")

// twoPods returns two located pods with one policy.
func twoPods(t *testing.T) *Pods {
	t.Helper()
	n := &node.Node{Node: dataplane.Node{Interfaces: map[netip.Addr]string{first: "if-1", second: "if-2"}}}
	w := World{Node: n, Sets: match.Sets{}, Book: policy.NewBook(), Store: table.NewStore(), Notes: note.NewBook()}
	w.Segs = table.NewSegments(w.Store, w.Sets, w.Notes, table.MaxRules)
	w.Book.OnUpdate(&felix.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &felix.ActivePolicyUpdate{
		Id: &felix.PolicyID{Tier: "a", Name: "a1"}, Policy: &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", SrcNet: []string{"10.0.0.0/8"}}}},
	}})
	g := New(w)
	g.PutWorkload(podAt("p1", first, "a1"))
	g.PutWorkload(podAt("p2", second, "a1"))
	if gone := g.Locate(); len(gone) > 0 {
		t.Fatalf("gone: %v", gone)
	}
	refresh(g)
	return g
}

func podAt(name string, a netip.Addr, policies ...string) *Workload {
	return NewWorkload(ID{Workload: name}, &felix.WorkloadEndpoint{State: "active", Ipv4Nets: []string{a.String() + "/32"}, Tiers: []*felix.TierInfo{{Name: "a", IngressPolicies: policies}}})
}

func refresh(g *Pods) { g.Refresh(func(s policy.Steps) policy.Steps { return s }) }

// TestEqualSpecsShareAProgram: pods with one policy have one program, and one table.
func TestEqualSpecsShareAProgram(t *testing.T) {
	g := twoPods(t)
	a, b := g.At(first), g.At(second)
	if a.Progs != b.Progs || a.Progs[0] == nil || !a.Progs[0].Closes() || !a.Progs[1].Closes() {
		t.Fatalf("programs %v and %v", a.Progs, b.Progs)
	}
	if len(a.Progs[0].Users) != 2 || len(g.Programs) != 2 || len(g.Lists) != 2 || len(g.Moved) != 2 {
		t.Errorf("%d users, %d programs, %d marked lists, %d moved", len(a.Progs[0].Users), len(g.Programs), len(g.Lists), len(g.Moved))
	}
}

// TestUnusedProgramIsDropped: with the last pod its program and the program's segments are removed.
func TestUnusedProgramIsDropped(t *testing.T) {
	g := twoPods(t)
	seg := g.At(first).Progs[0].Uses[0].Seg
	g.Node.Interfaces = nil
	gone := g.Locate()
	refresh(g)
	users := 0
	g.UsersOf(seg, func(*Iface) { users++ })
	if len(gone) != 2 || len(g.Ifaces)+len(g.Programs)+users > 0 {
		t.Errorf("%d gone; left: %d interfaces, %d programs, %d users of the segment", len(gone), len(g.Ifaces), len(g.Programs), users)
	}
}

// TestTwoPodsAtOneAddress: an interface whose endpoints have different specs has no program.
func TestTwoPodsAtOneAddress(t *testing.T) {
	g := twoPods(t)
	clear(g.Lists)
	g.PutWorkload(podAt("p3", first))
	g.Locate()
	refresh(g)
	i := g.At(first)
	if len(i.Work) != 2 || i.Progs != [2]*Program{} || !slices.Equal(Sorted(g.Lists), []*Iface{i}) || !g.Senders {
		t.Errorf("%+v, marked %v", i, g.Lists)
	}
	g.RemoveWorkload(ID{Workload: "p3"})
	g.Locate()
	if i.Progs != g.At(second).Progs {
		t.Error("the program did not return with the second endpoint's end")
	}
}
