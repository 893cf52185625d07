package vppagent_test

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestRejectRouteIsRemovedByItsPath deletes a frontend and adds it again while cnat has a session of its address, which is also another
// frontend's endpoint. If the agent deleted the reject route as a whole, the next route that covers the address would crash VPP.
func TestRejectRouteIsRemovedByItsPath(t *testing.T) {
	const address = "2001:db8:96::10"
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	if err := l.sim.AddRoute(sim.Route{Prefix: netip.MustParsePrefix("2001:db8:1::/64"), Paths: []sim.Path{{Interface: "tap1"}}}); err != nil {
		t.Fatal(err)
	}
	// Without the reject route the address has the paths of this route, while cnat has sessions of it.
	if err := l.sim.AddRoute(sim.Route{Prefix: netip.MustParsePrefix("2001:db8::/32"), Paths: []sim.Path{{Interface: "tap1", Via: netip.MustParseAddr("2001:db8:1::9")}}}); err != nil {
		t.Fatal(err)
	}
	other, frontend := translation("2001:db8:97::1", 80, address), translation(address, 80, "2001:db8:1::2")
	reject := &contivl3.RejectRoute{DstNetwork: address + "/128"}
	l.allConfigured(l.put(&cnat.Interface{Name: "tap1", Ipv6: true, Pod: true, IncludeIpv6: true}, other))
	for range 2 {
		l.allConfigured(l.put(reject, frontend))
		l.sim.Send("tap1", packet.NewTCP(netip.MustParseAddrPort("[2001:db8:1::1]:4000"), netip.AddrPortFrom(netip.MustParseAddr(address), 80)))
		if n := len(l.sim.TranslationSessions()); n == 0 {
			t.Fatal("no session")
		}
		l.allConfigured(l.del(kv.Key(reject), kv.Key(frontend)))
	}
	l.allConfigured(l.put(reject, frontend))
	l.sim.Advance(3 * time.Hour)
	if n := len(l.sim.TranslationSessions()); n > 0 {
		t.Fatalf("%d sessions hold the address", n)
	}
	l.allConfigured(l.del(kv.Key(reject), kv.Key(frontend)))
	l.allConfigured(l.del(kv.Key(other)))
	if err := l.sim.AddRoute(sim.Route{Prefix: netip.MustParsePrefix("2001:db8:96::/64"), Paths: []sim.Path{{Interface: "tap1"}}}); err != nil {
		t.Error(err)
	}
}

// TestRemovedPathIsNoRoute: while cnat has sessions of an address, VPP shows the path of a deleted route to it, and forwards by it. An agent that compares its values with VPP
// does not take that path for a route that is wanted again: when the sessions end, VPP would have none. Nor does an agent that begins then, also if one before it was killed
// between the line in its journal and the request, or lost its connection there. An agent that begins later writes nothing: its journal says that VPP has the route.
func TestRemovedPathIsNoRoute(t *testing.T) {
	for name, wanted := range map[string]proto.Message{
		"reject route": &contivl3.RejectRoute{DstNetwork: "2001:db8:96::10/128"},
		"neighbour":    &contivl3.RejectRoute{DstNetwork: "2001:db8:96::10/128", OutgoingInterface: "tap1", NextHopAddr: "2001:db8:1::7"},
		"route":        &l3.Route{DstNetwork: "2001:db8:96::10/128", OutgoingInterface: "tap1", NextHopAddr: "2001:db8:1::7"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, when := range []string{"", "cut", "begins", "killed"} {
				l, exists := removedUnderSession(t, wanted)
				l.writes()
				l.allConfigured(l.resync())
				l.quiet("while nobody wants the route")
				lookup := &ip.IPRouteLookup{Exact: 1, Prefix: ip_types.Prefix{Address: ip_types.NewAddress(netip.MustParseAddr("2001:db8:96::10").AsSlice()), Len: 128}}
				if r := l.conn.Do(t.Context(), vpp.Call{Msg: lookup})[0]; exists() || r.Err != nil || len(r.Msg.(*ip.IPRouteLookupReply).Route.Paths) != 1 {
					t.Fatalf("VPP shows %v, %v; the route exists: %v", r.Msg, r.Err, exists())
				}
				l.want[kv.Key(wanted)] = wanted
				if when == "killed" || when == "cut" {
					l.sim.Fail(func(message string) (int32, bool) { return 0, message == "ip_route_add_del" })
					l.resync()
					l.sim.Fail(nil)
					l.reconnect()
				}
				if when == "killed" || when == "begins" {
					l.restartAgent()
				}
				if l.allConfigured(l.resync()); !exists() {
					t.Errorf("%q: the route is missing", when)
				}
				l.restartAgent()
				l.writes()
				l.allConfigured(l.resync())
				l.quiet("a new agent")
				l.sim.Advance(3 * time.Hour)
				if n := len(l.sim.TranslationSessions()); n > 0 || !exists() {
					t.Errorf("%d sessions; the route exists: %v", n, exists())
				}
				l.writes()
				l.allConfigured(l.resync())
				l.quiet("when the sessions have ended")
			}
		})
	}
}

// removedUnderSession is an agent that has removed a route to 2001:db8:96::10 while cnat has a session of it. The function says whether VPP has the route.
func removedUnderSession(t *testing.T, route proto.Message) (l *lab, exists func() bool) {
	t.Helper()
	l = newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal")})
	addPod(l, "tap1", "10.1.1.2")
	if err := l.sim.AddRoute(sim.Route{Prefix: netip.MustParsePrefix("2001:db8:1::/64"), Paths: []sim.Path{{Interface: "tap1"}}}); err != nil {
		t.Fatal(err)
	}
	frontend := translation("2001:db8:96::10", 80, "2001:db8:1::2")
	l.allConfigured(l.put(&cnat.Interface{Name: "tap1", Ipv6: true, Pod: true, IncludeIpv6: true}, route, frontend))
	l.sim.Send("tap1", packet.NewTCP(netip.MustParseAddrPort("[2001:db8:1::1]:4000"), netip.MustParseAddrPort("[2001:db8:96::10]:80")))
	if len(l.sim.TranslationSessions()) == 0 {
		t.Fatal("no session")
	}
	l.allConfigured(l.del(kv.Key(route), kv.Key(frontend)))
	return l, func() bool { return strings.Contains(l.sim.Dump(), "2001:db8:96::10/128") }
}

// TestRouteOfAKilledAgentIsRemoved: an agent was killed after the request and before its journal said that VPP has the route, which nobody wants any more.
func TestRouteOfAKilledAgentIsRemoved(t *testing.T) {
	reject := &contivl3.RejectRoute{DstNetwork: "2001:db8:96::10/128"}
	l, exists := removedUnderSession(t, reject)
	copied := filepath.Join(t.TempDir(), "copied")
	done := l.cutAfter(1, copied)
	l.want[kv.Key(reject)] = reject
	l.resync()
	if !done() || !exists() {
		t.Fatalf("the route exists: %v", exists())
	}
	l.cfg.Journal = copied
	l.restartAgent()
	delete(l.want, kv.Key(reject))
	l.allConfigured(l.resync())
	if l.sim.Advance(3 * time.Hour); exists() {
		t.Error("the route stays")
	}
}

// TestRouteThatAKilledAgentRemoved: an agent was killed after the request that removed a route, and before its journal said so. The next agent wants the route again.
func TestRouteThatAKilledAgentRemoved(t *testing.T) {
	reject := &contivl3.RejectRoute{DstNetwork: "2001:db8:96::10/128"}
	l, exists := removedUnderSession(t, reject)
	l.allConfigured(l.put(reject))
	copied := filepath.Join(t.TempDir(), "copied")
	done := l.cutAfter(1, copied)
	l.del(kv.Key(reject))
	if !done() || exists() {
		t.Fatalf("the route exists: %v", exists())
	}
	l.cfg.Journal = copied
	l.restartAgent()
	l.want[kv.Key(reject)] = reject
	if l.allConfigured(l.resync()); !exists() {
		t.Error("the route is missing")
	}
}

// TestRejectRouteOfAllAddressesIsRefused: no prefix covers 0.0.0.0/0, so VPP's paths to it are those of another client.
func TestRejectRouteOfAllAddressesIsRefused(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	if err := l.sim.AddRoute(sim.Route{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Paths: []sim.Path{{Interface: "tap1"}}}); err != nil {
		t.Fatal(err)
	}
	reject := &contivl3.RejectRoute{DstNetwork: "0.0.0.0/0"}
	l.put(reject)
	if text := l.wantState(kv.Key(reject), event.Retrying); !strings.Contains(text, "another client of VPP has a route to 0.0.0.0/0") {
		t.Error(text)
	}
}
