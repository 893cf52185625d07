package source

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

var pod = netip.MustParseAddr("10.1.1.1")

// world returns a pod without policies whose endpoint allows one more source, and the checks.
func world(mode Mode) (*endpoint.Pods, *endpoint.Iface, *Checks) {
	n := &node.Node{Node: dataplane.Node{Uplink: "uplink", Overlay: "overlay", Interfaces: map[netip.Addr]string{pod: "if-1"}, Own: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}}}
	w := endpoint.World{Node: n, Sets: match.Sets{}, Book: policy.NewBook(), Store: table.NewStore(), Notes: note.NewBook()}
	w.Segs = table.NewSegments(w.Store, w.Sets, w.Notes, table.MaxRules)
	pods := endpoint.New(w)
	pods.PutWorkload(endpoint.NewWorkload(endpoint.ID{Workload: "p1"}, &felix.WorkloadEndpoint{
		State: "active", Ipv4Nets: []string{"10.1.1.1/32"}, AllowSpoofedSourcePrefixes: []string{"172.16.0.0/16"},
	}))
	pods.Locate()
	pods.Refresh(func(s policy.Steps) policy.Steps { return s })
	return pods, pods.At(pod), New(pods, mode)
}

// denied reports whether the first place of a list denies packets from an address, or does not permit them as the only one.
func denied(s *table.Store, list []lists.Place, src string) bool {
	for _, a := range s.Fixed(list[0].Table).Rules {
		if a.Src.Contains(netip.MustParseAddr(src)) && a.Proto == 0 {
			return a.Verb == match.Deny
		}
	}
	return false
}

// TestModes: which sources pass, for a pod with other lists and for one without.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		mode          Mode
		setting       string
		allowed, owns bool
		notes         int
	}{{Strict, "", false, true, 1}, {Strict, "Any", true, false, 0}, {Allowed, "", true, false, 0}} {
		for _, other := range [][]lists.Place{nil, {{Table: table.StaticIn}}} {
			pods, i, g := world(c.mode)
			g.Configure(map[string]string{configSpoofing: c.setting})
			l := g.InFront(i, lists.Lists{In: slices.Clone(other)})
			if len(l.In) != len(other)+1 || !l.In[0].SourceCheck || l.Check == nil {
				t.Fatalf("%+v: %v", c, l.In)
			}
			if denied(pods.Store, l.In, "10.1.1.1") || denied(pods.Store, l.In, "172.16.1.1") == c.allowed || !denied(pods.Store, l.In, "10.1.1.2") {
				t.Errorf("%+v, with %d other tables: the check decides otherwise", c, len(other))
			}
			if g.SendsOwn(i) != c.owns || len(g.Notes(i)) != c.notes {
				t.Errorf("%+v: sends own %v, notes %v", c, g.SendsOwn(i), g.Notes(i))
			}
			g.ForgetIface(i)
			if pods.Store.Fixed(l.In[0].Table) != nil {
				t.Error("the table remains")
			}
		}
	}
	_, i, g := world(Off)
	if l := g.InFront(i, lists.Lists{}); len(l.In) > 0 || g.SendsOwn(i) || len(g.Notes(i)) > 0 || g.Outside(true) {
		t.Error("off, and something is checked")
	}
}

// TestOutside: packets from outside are checked if policies restrict a pod, or if a host endpoint is enforced.
func TestOutside(t *testing.T) {
	pods, i, g := world(Strict)
	i.Progs[0] = nil
	if g.Outside(false) {
		t.Error("checked, although nothing is restricted")
	}
	if !g.Outside(true) || !pods.Leaving {
		t.Fatal("not checked")
	}
	g.FixOutside()
	for _, name := range []string{"uplink", "overlay"} {
		only, first := g.InFrontOutside(name, lists.Lists{}), g.InFrontOutside(name, lists.Lists{In: []lists.Place{{Table: table.StaticIn}}})
		if !denied(pods.Store, only.In, "10.1.1.9") || denied(pods.Store, only.In, "10.1.2.9") || !denied(pods.Store, first.In, "10.1.1.9") || len(first.In) != 2 {
			t.Errorf("%s: %v, %v", name, only.In, first.In)
		}
	}
	g.Outside(false)
	g.FixOutside()
	if pods.Store.Fixed(table.OutsideOnly) != nil || len(g.InFrontOutside("uplink", lists.Lists{}).In) > 0 {
		t.Error("something remains")
	}
}
