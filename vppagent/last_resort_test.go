package vppagent_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/kv"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/sim"
)

func lastResort(prefix string) *contivl3.RejectRoute {
	return &contivl3.RejectRoute{DstNetwork: prefix, Action: contivl3.RejectRoute_DROP, LastResort: true}
}

// routesTo are the lines of a dump about one prefix.
func (c *clocked) routesTo(prefix string) string {
	var out []string
	for line := range strings.Lines(c.sim.Dump()) {
		if strings.HasPrefix(line, "route 0:"+prefix+" ") {
			out = append(out, strings.Trim(strings.TrimSpace(strings.TrimPrefix(line, "route 0:"+prefix)), "[]"))
		}
	}
	return strings.Join(out, "; ")
}

// TestLastResort: VPP has a route of last resort exactly while it has no other route to its prefix, regardless of that route's owner and
// time. The route of last resort never replaces the other route.
func TestLastResort(t *testing.T) {
	for name, prefix := range map[string]string{"IPv4": "10.1.1.0/24", "IPv6": "fd00:1:1::/64"} {
		t.Run(name, func(t *testing.T) { testLastResort(t, prefix) })
	}
}

func testLastResort(t *testing.T, prefix string) {
	p := netip.MustParsePrefix(prefix)
	key := kv.Key(lastResort(prefix))
	c := newClocked(t)
	pods(c.lab)
	check := func(when, want string) {
		t.Helper()
		if got := c.routesTo(prefix); got != want {
			t.Errorf("%s: routes %q, want %q", when, got, want)
		}
	}
	foreign := func() {
		t.Helper()
		if err := c.sim.AddRoute(sim.Route{Prefix: p, Paths: []sim.Path{{Interface: "tap2"}}}); err != nil {
			t.Fatal(err)
		}
	}
	const ours, theirs = "drop preference 255", "via tap2"

	c.allConfigured(c.put(lastResort(prefix)))
	check("nothing else", ours)
	foreign()
	check("another client's route comes", theirs)
	c.writes()
	if found := c.round(); len(found) > 0 {
		t.Errorf("another client's route is drift: %v", found)
	}
	c.quiet("another client's route is in place")
	c.sim.RemoveRoute(0, p)
	if got := lines(c.round()); len(got) != 1 || got[0] != key+" missing true" {
		t.Errorf("after the other route: %v", got)
	}
	check("the other route went", ours)

	c.allConfigured(c.del(key))
	check("not wanted", "")
	foreign()
	c.writes()
	c.allConfigured(c.put(lastResort(prefix)))
	c.quiet("another client's route was first")
	check("another client's route was first", theirs)
	c.restartAgent()
	c.allConfigured(c.resync())
	c.quiet("a restart of the agent")
	c.allConfigured(c.del(key))
	check("not wanted, and never made", theirs)
}

// TestLastResortIsGuarded: the agent recreates a route that another client removed; a route of an earlier agent belongs to this agent.
func TestLastResortIsGuarded(t *testing.T) {
	c := newClocked(t)
	pods(c.lab)
	m := lastResort("10.1.1.0/24")
	c.allConfigured(c.put(m))
	c.restartAgent()
	c.allConfigured(c.resync())
	c.writes()
	c.round()
	c.quiet("an unchanged VPP")
	c.sim.RemoveRoute(0, netip.MustParsePrefix("10.1.1.0/24"))
	if got := lines(c.round()); len(got) != 1 {
		t.Errorf("found %v", got)
	}
	if got := c.routesTo("10.1.1.0/24"); got != "drop preference 255" {
		t.Errorf("routes %q", got)
	}
	c.allConfigured(c.del(kv.Key(m)))
	if got := c.routesTo("10.1.1.0/24"); got != "" {
		t.Errorf("left: %q", got)
	}
}

// TestNextHopUnderLastResort: a next hop without an interface, which crashes VPP under another drop route, may resolve by a route of
// last resort, also after a dump that shows a drop.
func TestNextHopUnderLastResort(t *testing.T) {
	c := newClocked(t)
	pods(c.lab)
	c.allConfigured(c.put(lastResort("10.9.9.0/24")))
	c.allConfigured(c.put(&l3.Route{DstNetwork: "172.16.0.0/16", NextHopAddr: "10.9.9.5", ViaVrfId: 0, Type: l3.Route_INTRA_VRF}))
	c.restartAgent()
	c.allConfigured(c.resync())
	c.allConfigured(c.put(&l3.Route{DstNetwork: "172.17.0.0/16", NextHopAddr: "10.9.9.6", Type: l3.Route_INTRA_VRF}))
}

func TestLastResortDrops(t *testing.T) {
	c := newClocked(t)
	bad := c.put(&contivl3.RejectRoute{DstNetwork: "10.1.1.0/24", LastResort: true})
	if got := statuses(bad); !strings.Contains(got, "last_resort: only with action DROP, not UNREACHABLE") {
		t.Error(got)
	}
}
