package sim

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	cnatapi "go.fd.io/govpp/binapi/cnat"
	featureapi "go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
)

// six adds IPv6 to node's pods.
func six(t testing.TB, v *VPP) {
	t.Helper()
	for pod, addr := range map[string]string{"pod-a": "fd00:1::2/128", "pod-b": "fd00:1::3/128"} {
		addRoute(t, v, addr, Path{Interface: pod, Via: netip.MustParsePrefix(addr).Addr()})
	}
	addRoute(t, v, "::/0", Path{Interface: "uplink"})
}

// endpoint parses "10.96.0.10:80", "10.96.0.10" or "".
func endpoint(s string) cnatapi.CnatEndpoint {
	e := cnatapi.CnatEndpoint{SwIfIndex: interface_types.InterfaceIndex(noIndex)}
	if p, err := netip.ParseAddrPort(s); err == nil {
		e.Addr, e.Port = toAddress(p.Addr()), p.Port()
	} else if s != "" {
		e.Addr = toAddress(netip.MustParseAddr(s))
	}
	return e
}

// translation returns a request for TCP whose address keeps its routes.
func translation(vip string, backends ...string) *cnatapi.CnatTranslationUpdate {
	m := &cnatapi.CnatTranslationUpdate{Translation: cnatapi.CnatTranslation{Vip: endpoint(vip), IPProto: ip_types.IP_API_PROTO_TCP, IsRealIP: 1}}
	for _, b := range backends {
		m.Translation.Paths = append(m.Translation.Paths, cnatapi.CnatEndpointTuple{DstEp: endpoint(b), SrcEp: endpoint("")})
	}
	m.Translation.NPaths = uint32(len(backends))
	return m
}

// featured puts the plugin's nodes on interfaces.
func featured(c *client, v *VPP, names ...string) {
	c.t.Helper()
	for _, name := range names {
		for _, f := range [][2]string{{"ip4-unicast", "cnat-input-ip4"}, {"ip4-output", "cnat-output-ip4"}, {"ip6-unicast", "cnat-input-ip6"}, {"ip6-output", "cnat-output-ip6"}} {
			c.must(&featureapi.FeatureEnableDisable{SwIfIndex: interface_types.InterfaceIndex(v.ifs.byName[name].index), Enable: true, ArcName: f[0], FeatureName: f[1]})
		}
	}
}

// masquerading configures the plugin for Kubernetes.
func masquerading(c *client, v *VPP) {
	c.t.Helper()
	c.must(&cnatapi.CnatSetSnatPolicy{Policy: cnatapi.CNAT_POLICY_K8S})
	for _, pod := range []string{"pod-a", "pod-b"} {
		i := interface_types.InterfaceIndex(v.ifs.byName[pod].index)
		c.must(&cnatapi.CnatSnatPolicyAddDelIf{SwIfIndex: i, IsAdd: 1, Table: cnatapi.CNAT_POLICY_POD})
		c.must(&cnatapi.CnatSnatPolicyAddDelIf{SwIfIndex: i, IsAdd: 1, Table: cnatapi.CNAT_POLICY_INCLUDE_V4})
	}
	c.must(&cnatapi.CnatSnatPolicyAddDelExcludePfx{IsAdd: 1, Prefix: toPrefix(netip.MustParsePrefix("10.1.0.0/16"))})
	c.must(&cnatapi.CnatSetSnatAddresses{SnatIP4: [4]byte{10, 9, 9, 9}, SnatIP6: netip.MustParseAddr("fd00:9::9").As16(), SwIfIndex: interface_types.InterfaceIndex(noIndex)})
}

type exchange struct{ name, in, pkt, want string }

func pass(t *testing.T, v *VPP, list ...exchange) {
	t.Helper()
	for _, c := range list {
		if got := send(t, v, c.in, c.pkt); got != c.want {
			t.Errorf("%s: got %s want %s", c.name, got, c.want)
		}
	}
}

func TestTranslations(t *testing.T) {
	v := node(t, Config{})
	six(t, v)
	c := dial(t, v)
	featured(c, v, "pod-a", "pod-b", "uplink", "overlay")
	masquerading(c, v)
	c.must(translation("10.96.0.10:80", "10.1.1.3:8080"), translation("[fd00:96::10]:80", "[fd00:1::3]:8080"))
	addRoute(t, v, "10.96.0.10/32", Path{Type: PathUnreach})
	pass(t, v,
		exchange{"request", "pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]", "pod-b tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [S]"},
		exchange{"reply", "pod-b", "tcp 10.1.1.3:8080 -> 10.1.1.2:4000 [SA]", "pod-a tcp 10.96.0.10:80 -> 10.1.1.2:4000 [SA]"},
		exchange{"not this flow", "pod-b", "tcp 10.1.1.3:8080 -> 10.1.1.2:4001 [A]", "pod-a tcp 10.1.1.3:8080 -> 10.1.1.2:4001 [A]"},
		exchange{"other port", "pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.10:81 [S]", "icmp-error pod-a icmp 10.1.1.1 -> 10.1.1.2 type 3 code 1 about (tcp 10.1.1.2:4000 -> 10.96.0.10:81 [S])"},
		exchange{"from outside", "uplink", "tcp 9.9.9.9:4000 -> 10.96.0.10:80 [S]", "pod-b tcp 9.9.9.9:4000 -> 10.1.1.3:8080 [S]"},
		exchange{"back out", "pod-b", "tcp 10.1.1.3:8080 -> 9.9.9.9:4000 [SA]", "uplink tcp 10.96.0.10:80 -> 9.9.9.9:4000 [SA]"},
		exchange{"to itself", "pod-b", "tcp 10.1.1.3:4000 -> 10.96.0.10:80 [S]", "pod-b tcp 10.9.9.9:49152 -> 10.1.1.3:8080 [S]"},
		exchange{"from itself", "pod-b", "tcp 10.1.1.3:8080 -> 10.9.9.9:49152 [SA]", "pod-b tcp 10.96.0.10:80 -> 10.1.1.3:4000 [SA]"},
		exchange{"to the world", "pod-a", "udp 10.1.1.2:4000 -> 9.9.9.9:53", "uplink udp 10.9.9.9:49152 -> 9.9.9.9:53"},
		exchange{"from the world", "uplink", "udp 9.9.9.9:53 -> 10.9.9.9:49152", "pod-a udp 9.9.9.9:53 -> 10.1.1.2:4000"},
		exchange{
			"complaint", "pod-b", "icmp 10.1.1.3 -> 10.1.1.2 type 3 code 3 about (tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [S])",
			"pod-a icmp 10.96.0.10 -> 10.1.1.2 type 3 code 3 about (tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S])",
		},
		exchange{"IPv6 request", "pod-a", "tcp [fd00:1::2]:4000 -> [fd00:96::10]:80 [S]", "pod-b tcp [fd00:1::2]:4000 -> [fd00:1::3]:8080 [S]"},
		exchange{"IPv6 reply", "pod-b", "tcp [fd00:1::3]:8080 -> [fd00:1::2]:4000 [SA]", "pod-a tcp [fd00:96::10]:80 -> [fd00:1::2]:4000 [SA]"},
		exchange{"IPv6 to itself", "pod-b", "tcp [fd00:1::3]:4000 -> [fd00:96::10]:80 [S]", "pod-b tcp [fd00:9::9]:49153 -> [fd00:1::3]:8080 [S]"},
	)
	if dump := v.Dump(); !strings.Contains(dump, "cnat TCP 10.96.0.10:80\n  to 10.1.1.3:8080\n") || !strings.Contains(dump, "feature pod-a cnat-input-ip4\n") {
		t.Error(dump)
	}
}

func TestTranslatedFlowsKeepTheirBackend(t *testing.T) {
	v := node(t, Config{})
	c := dial(t, v)
	featured(c, v, "pod-a", "pod-b", "overlay")
	c.must(translation("10.96.0.10:80", "10.1.1.3:8080"))
	const request, reply = "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [A]", "tcp 10.1.1.3:8080 -> 10.1.1.2:4000 [SA]"
	old, fresh := "pod-b tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [A]", "overlay tcp 10.1.1.2:4000 -> 10.1.2.9:8080 [A]"
	back := "pod-a tcp 10.96.0.10:80 -> 10.1.1.2:4000 [SA]"
	pass(t, v, exchange{"first", "pod-a", request, old}, exchange{"first reply", "pod-b", reply, back})
	c.must(translation("10.96.0.10:80", "10.1.2.9:8080"))
	pass(t, v, exchange{"other backends", "pod-a", request, old})
	c.must(&cnatapi.CnatTranslationDel{ID: 0})
	v.Advance(59 * time.Minute)
	pass(t, v, exchange{"deleted, and almost an hour later", "pod-a", request, old})
	v.Advance(time.Hour + time.Second)
	if n := len(v.TranslationSessions()); n != 0 {
		t.Errorf("an hour later there are %d sessions", n)
	}
	c.must(translation("10.96.0.10:80", "10.1.2.9:8080"))
	mark := v.Snapshot()
	pass(t, v, exchange{"an hour later", "pod-a", request, fresh})
	v.Restore(mark)
	if n := len(v.TranslationSessions()); n != 0 {
		t.Errorf("as if nothing had been, there are %d sessions", n)
	}
	v.Release()
	c.must(&cnatapi.CnatSessionPurge{})
	if n := len(dump[*cnatapi.CnatTranslationDetails](c, &cnatapi.CnatTranslationDump{})); n != 0 {
		t.Errorf("a purge left %d translations", n)
	}
	c.must(translation("10.96.0.10:80", "10.1.1.3:8080"))
	pass(t, v, exchange{"again", "pod-a", request, old})
	v.Restart()
	if text := v.Dump(); len(v.TranslationSessions()) != 0 || strings.Contains(text, "cnat") {
		t.Errorf("a restart left %v and\n%s", v.TranslationSessions(), text)
	}
	pass(t, v, exchange{"after a restart", "pod-a", request, "uplink tcp 10.1.1.2:4000 -> 10.96.0.10:80 [A]"})
}

// TestTranslationsByRoute: without features the routes lead to the plugin, and the client's address becomes one of the plugin.
func TestTranslationsByRoute(t *testing.T) {
	v := node(t, Config{})
	c := dial(t, v)
	hidden := translation("10.96.0.10:80", "10.1.1.3:8080")
	hidden.Translation.IsRealIP = 0
	c.must(hidden)
	addRoute(t, v, "10.96.0.10/32", Path{Type: PathUnreach})
	pass(t, v,
		exchange{"request", "pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]", "pod-b tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [S]"},
		exchange{"reply", "pod-b", "tcp 10.1.1.3:8080 -> 10.1.1.2:4000 [SA]", "pod-a tcp 10.96.0.10:80 -> 10.1.1.2:4000 [SA]"},
		exchange{"other port of an exclusive address", "pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.10:81 [S]", "dropped: ip4-lookup: drop: 10.96.0.10/32 cnat's own"},
	)
	mark := v.Snapshot()
	pass(t, v, exchange{"from outside", "uplink", "tcp 9.9.9.9:4000 -> 10.96.0.10:80 [S]", "pod-b tcp 9.9.9.9:4000 -> 10.1.1.3:8080 [S]"})
	learnt := func() bool { return v.fib[ip4].findTable(0).owned(netip.MustParseAddr("9.9.9.9")) }
	if !learnt() {
		t.Error("the client was not learnt")
	}
	v.Restore(mark)
	if learnt() {
		t.Error("the client is there before it came")
	}
	v.Release()
}

func TestTranslationTraps(t *testing.T) {
	reject := func(p string) *ip.IPRouteAddDel {
		return &ip.IPRouteAddDel{IsAdd: true, Route: route(0, true, p, special(PathUnreach)).Route}
	}
	for name, prepare := range map[string]func(c *client, v *VPP){
		"no paths": func(c *client, _ *VPP) { c.ask(translation("10.96.0.10:80")) },
		"the address is covered by a reject route": func(c *client, _ *VPP) {
			c.must(reject("10.96.0.0/16"))
			c.ask(translation("10.96.0.10:80", "10.1.1.3:8080"))
		},
		"a backend is": func(c *client, _ *VPP) {
			c.must(reject("10.97.0.0/16"))
			c.ask(translation("10.96.0.10:80", "10.97.1.3:8080"))
		},
		"the address's own route goes": func(c *client, _ *VPP) {
			c.must(reject("10.96.0.10/32"), reject("10.96.0.0/16"), translation("10.96.0.10:80", "10.1.1.3:8080"))
			gone := reject("10.96.0.10/32")
			gone.IsAdd = false
			c.ask(gone)
		},
		"a client's address is": func(c *client, v *VPP) {
			c.must(reject("10.97.0.0/16"), translation("10.96.0.10:80", "10.1.1.3:8080"))
			send(c.t, v, "uplink", "tcp 10.97.7.7:4000 -> 10.96.0.10:80 [S]")
		},
		"an error about SCTP with another source": func(c *client, v *VPP) {
			m := translation("10.96.0.10:80", "10.1.1.3:8080")
			m.Translation.IPProto, m.Translation.Paths[0].SrcEp = ip_types.IP_API_PROTO_SCTP, endpoint("10.1.1.254")
			c.must(m, translation("10.96.0.10:80", "10.1.1.3:8080"))
			send(c.t, v, "pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]") // now the client's address is the plugin's
			send(c.t, v, "pod-a", "sctp 10.1.1.2:4000 -> 10.96.0.10:80")
			send(c.t, v, "pod-b", "icmp 10.1.1.3 -> 10.1.1.254 type 3 code 3 about (sctp 10.1.1.254:4000 -> 10.1.1.3:8080)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := node(t, Config{})
			c := dial(t, v)
			prepare(c, v)
			if !c.dead() || v.Crashed() == nil {
				t.Errorf("VPP survives: %v", v.Crashed())
			}
		})
	}
}

// TestInterposedRouteRemovedByPaths: where the cnat plugin interposes itself on a route, VPP still forwards by paths that
// ip_route_add_del removed, until another source of the prefix is set or deleted (fib_entry_path_remove, VPP 24.06 to 26.06; seen on
// 25.10).
func TestInterposedRouteRemovedByPaths(t *testing.T) {
	const vip, syn = "fd00:96::10/128", "tcp [fd00:1::2]:4000 -> [fd00:96::10]:80 [S]"
	const rejected = "dropped: ip6-icmp-error: drop: icmp-error no route, but pod-a has no address to complain from"
	for name, tc := range map[string]struct {
		then []api.Message
		want string
	}{
		"the path taken away": {[]api.Message{removal(vip, true, PathUnreach)}, rejected},
		"the route deleted":   {[]api.Message{removal(vip, false)}, "uplink " + syn},
		"the path taken away, the route set and deleted": {
			[]api.Message{removal(vip, true, PathUnreach), route(0, true, vip, special(PathDrop)), removal(vip, false)}, "uplink " + syn,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := node(t, Config{})
			six(t, v)
			c := dial(t, v)
			c.must(&ip.IPRouteAddDel{IsAdd: true, Route: route(0, true, vip, special(PathUnreach)).Route})
			featured(c, v, "pod-a", "pod-b")
			c.must(translation("[fd00:96::10]:80", "[fd00:1::3]:8080"))
			pass(t, v, exchange{"new", "pod-a", syn, "pod-b tcp [fd00:1::2]:4000 -> [fd00:1::3]:8080 [S]"})
			c.must(&cnatapi.CnatTranslationDel{ID: 0})
			c.must(tc.then...)
			pass(t, v, exchange{name, "pod-a", strings.Replace(syn, "4000", "4001", 1), strings.ReplaceAll(tc.want, "4000", "4001")})
			if v.Advance(3 * time.Hour); strings.Contains(v.Dump(), "fd00:96::10") {
				t.Errorf("the address outlives the last session:\n%s", v.Dump())
			}
		})
	}
}

// removal deletes a route, or only the given paths of it.
func removal(p string, byPaths bool, types ...PathType) *ip.IPRouteAddDel {
	m := &ip.IPRouteAddDel{IsMultipath: byPaths}
	var paths []fib_types.FibPath
	for _, typ := range types {
		paths = append(paths, special(typ))
	}
	m.Route = route(0, false, p, paths...).Route
	return m
}
