package sim

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	classifyapi "go.fd.io/govpp/binapi/classify"
	cnatapi "go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
	"go.fd.io/govpp/binapi/pipe"
	"go.fd.io/govpp/binapi/session"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

func address(i uint32, add bool, p string) *interfaces_.SwInterfaceAddDelAddress {
	return &interfaces_.SwInterfaceAddDelAddress{SwIfIndex: interface_types.InterfaceIndex(i), IsAdd: add, Prefix: ip_types.AddressWithPrefix(toPrefix(netip.MustParsePrefix(p)))}
}

func route(table uint32, add bool, p string, paths ...fib_types.FibPath) *ip.IPRouteAddDel {
	return &ip.IPRouteAddDel{IsAdd: add, Route: ip.IPRoute{TableID: table, Prefix: toPrefix(netip.MustParsePrefix(p)), NPaths: uint8(len(paths)), Paths: paths}}
}

func via(i uint32, addr string) fib_types.FibPath {
	p := path{swIf: i, weight: 1}
	if addr != "" {
		p.via = netip.MustParseAddr(addr)
	}
	return p.encodePath(ip4)
}

func special(typ PathType) fib_types.FibPath {
	return fib_types.FibPath{SwIfIndex: noIndex, Type: fib_types.FibPathType(typ)}
}

func neigh(i uint32, add bool, addr string) *ip_neighbor.IPNeighborAddDel {
	return &ip_neighbor.IPNeighborAddDel{IsAdd: add, Neighbor: ip_neighbor.IPNeighbor{
		SwIfIndex: interface_types.InterfaceIndex(i), Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC, MacAddress: [6]byte{2}, IPAddress: toAddress(netip.MustParseAddr(addr)),
	}}
}

// TestRetvals: retvals measured on VPP 24.06, request after request on one VPP that has tap0 (1), tap1 (2) and table 5.
func TestRetvals(t *testing.T) {
	v := New(Config{HostInterfaces: []string{"eth0"}})
	v.AddInterface(Interface{Name: "tap0"})
	v.AddInterface(Interface{Name: "tap1"})
	c := dial(t, v)
	c.must(&ip.IPTableAddDel{IsAdd: true, Table: ip.IPTable{TableID: 5}})
	table := func(i, id uint32) api.Message {
		return &interfaces_.SwInterfaceSetTable{SwIfIndex: interface_types.InterfaceIndex(i), VrfID: id}
	}
	for _, s := range []struct {
		name string
		req  api.Message
		want int32
	}{
		{"loopback", &interfaces_.CreateLoopbackInstance{IsSpecified: true, UserInstance: 3}, 0}, // 3
		{"taken loopback", &interfaces_.CreateLoopbackInstance{IsSpecified: true, UserInstance: 3}, -31},
		{"loopback out of range", &interfaces_.CreateLoopbackInstance{IsSpecified: true, UserInstance: 16384}, -31},
		{"delete no loopback", &interfaces_.DeleteLoopback{SwIfIndex: 1}, -2},
		{"tap", &tapv2.TapCreateV3{ID: 9}, 0}, // 4
		{"taken tap", &tapv2.TapCreateV3{ID: 9}, -71},
		{"taken tap v2", &tapv2.TapCreateV2{ID: 0}, -71},
		{"delete no tap", &tapv2.TapDeleteV2{SwIfIndex: 3}, -2},
		{"af_packet without host interface", &af_packet.AfPacketCreateV3{HostIfName: "eth7"}, -71},
		{"af_packet", &af_packet.AfPacketCreateV3{HostIfName: "eth0"}, 0}, // 5
		{"af_packet again", &af_packet.AfPacketCreateV3{HostIfName: "eth0"}, -79},
		{"delete no af_packet", &af_packet.AfPacketDelete{HostIfName: "eth7"}, -11},
		{"memif without socket", &memif.MemifCreateV2{SocketID: 4}, -73},
		{"memif ring", &memif.MemifCreateV2{RingSize: 1000}, -73},
		{"memif socket", &memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: 4, SocketFilename: "x"}, 0},
		{"memif socket again", &memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: 4, SocketFilename: "x"}, 0},
		{"memif socket moved", &memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: 4, SocketFilename: "y"}, -116},
		{"memif socket 0", &memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketFilename: "y"}, -73},
		{"memif", &memif.MemifCreateV2{SocketID: 4, ID: 1}, 0}, // 6
		{"memif again", &memif.MemifCreateV2{SocketID: 4, ID: 1}, -68},
		{"memif socket in use", &memif.MemifSocketFilenameAddDelV2{SocketID: 4}, -74},
		{"delete memif", &memif.MemifDelete{SwIfIndex: 6}, 0},
		{"memif socket not in use", &memif.MemifSocketFilenameAddDelV2{SocketID: 4}, 0},
		{"delete no memif socket", &memif.MemifSocketFilenameAddDelV2{SocketID: 4}, -73},

		{"flags of nothing", &interfaces_.SwInterfaceSetFlags{SwIfIndex: 99}, -2},
		{"mtu of nothing", &interfaces_.SwInterfaceSetMtu{SwIfIndex: 99, Mtu: make([]uint32, 4)}, -2},
		{"mac of nothing", &interfaces_.SwInterfaceSetMacAddress{SwIfIndex: 99}, -2},
		{"tag", &interfaces_.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: 1, Tag: "a"}, 0},
		{"other tag", &interfaces_.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: 1, Tag: "b"}, 0},
		{"empty tag", &interfaces_.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: 1}, -7},
		{"no tag", &interfaces_.SwInterfaceTagAddDel{SwIfIndex: 1}, 0},
		{"no tag again", &interfaces_.SwInterfaceTagAddDel{SwIfIndex: 1}, 0},
		{"tag of nothing", &interfaces_.SwInterfaceTagAddDel{SwIfIndex: 99}, -2},

		{"address", address(1, true, "10.1.0.1/24"), 0},
		{"address again", address(1, true, "10.1.0.1/24"), -105},
		{"second of the subnet", address(1, true, "10.1.0.2/24"), 0},
		{"subnet of another interface", address(2, true, "10.1.0.3/24"), -105},
		{"overlap with another", address(2, true, "10.1.0.0/16"), -105},
		{"no such address", address(1, false, "10.9.0.1/24"), -60},
		{"other length", address(1, false, "10.1.0.1/25"), -60},
		{"address of nothing", address(99, true, "10.1.0.1/24"), -2},
		{"table with an address", table(1, 5), -114},
		{"its own table with an address", table(1, 0), -114},
		{"no such table", table(2, 7), -3},
		{"table of nothing", table(99, 5), -2},
		{"table", table(2, 5), 0},
		{"the same subnet in another table", address(2, true, "10.1.0.1/24"), 0},
		{"delete all addresses", &interfaces_.SwInterfaceAddDelAddress{SwIfIndex: 2, DelAll: true}, 0},

		{"table again", &ip.IPTableAddDel{IsAdd: true, Table: ip.IPTable{TableID: 5}}, 0},
		{"delete no table", &ip.IPTableAddDel{Table: ip.IPTable{TableID: 77}}, 0},
		{"delete the default table", &ip.IPTableAddDel{}, 0},
		{"route", route(0, true, "10.2.0.0/16", via(1, "10.1.0.9")), 0},
		{"route again", route(0, true, "10.2.0.0/16", via(1, "10.1.0.9")), 0},
		{"route with host bits", route(0, true, "10.3.0.7/24", via(1, "")), 0},
		{"route in no table", route(9, true, "10.2.0.0/16", via(1, "")), -3},
		{"route without interface", route(0, true, "10.2.0.0/16", via(99, "10.1.0.9")), -54},
		{"route into no table", route(0, true, "10.2.0.0/16", fib_types.FibPath{SwIfIndex: noIndex, TableID: 9}), -3},
		{"route without paths", route(0, true, "10.2.0.0/16"), -52},
		{"delete no route", route(0, false, "10.77.0.0/16"), 0},
		{"delete a route by another path", route(0, false, "10.2.0.0/16", special(PathDrop)), 0},
		{"lookup exactly what is gone", &ip.IPRouteLookup{Exact: 1, Prefix: toPrefix(netip.MustParsePrefix("10.2.0.0/16"))}, -6},
		{"lookup in no table", &ip.IPRouteLookup{TableID: 9, Prefix: toPrefix(netip.MustParsePrefix("10.2.0.0/16"))}, -3},
		{"lookup", &ip.IPRouteLookup{Prefix: toPrefix(netip.MustParsePrefix("10.2.0.0/16"))}, 0},
		{"neighbour", neigh(1, true, "10.1.0.9"), 0},
		{"neighbour again", neigh(1, true, "10.1.0.9"), 0},
		{"delete no neighbour", neigh(1, false, "10.1.0.8"), -6},
		{"neighbour of nothing", neigh(99, true, "10.1.0.9"), -2},
		{"unnumbered without lender", &interfaces_.SwInterfaceSetUnnumbered{SwIfIndex: 99, UnnumberedSwIfIndex: 1, IsAdd: true}, -10},
		{"unnumbered nothing", &interfaces_.SwInterfaceSetUnnumbered{SwIfIndex: 1, UnnumberedSwIfIndex: 99, IsAdd: true}, -2},
		{"unnumbered", &interfaces_.SwInterfaceSetUnnumbered{SwIfIndex: 1, UnnumberedSwIfIndex: 3, IsAdd: true}, 0},

		{"nat role while disabled", &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, SwIfIndex: 1}, -126},
		{"nat disable while disabled", &nat44_ed.Nat44EdPluginEnableDisable{}, -169},
		{"nat forwarding while disabled", &nat44_ed.Nat44ForwardingEnableDisable{Enable: true}, 0},
		{"nat enable", &nat44_ed.Nat44EdPluginEnableDisable{Enable: true}, 0},
		{"nat enable again", &nat44_ed.Nat44EdPluginEnableDisable{Enable: true}, -170},
		{"nat role of nothing", &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, SwIfIndex: 99}, -2},
		{"nat role", &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, SwIfIndex: 1, Flags: nat_types.NAT_IS_INSIDE}, 0},
		{"nat output on a role", &nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: true, SwIfIndex: 1}, -81},
		{"nat output of nothing", &nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: true, SwIfIndex: 99}, -2},
		{"nat workers", &nat44_ed.NatSetWorkers{}, -30},
		{"session layer", &session.SessionEnableDisable{IsEnable: true}, 0},
		{"cli", &vlib.CliInband{Cmd: "show  version"}, 0},
		{"no such cli", &vlib.CliInband{Cmd: "set nat44 session limit 1"}, -1},
	} {
		if got := c.retval(s.req); got != s.want {
			t.Errorf("%s (%s %+v): retval %d, want %d", s.name, s.req.GetMessageName(), s.req, got, s.want)
		}
	}
}

// Requests that crash VPP outside the NAT. Each is harmless in the variant before it.
func TestTraps(t *testing.T) {
	for _, c := range []struct {
		name  string
		fine  []api.Message
		kills api.Message
		want  trap
	}{
		{
			"unreach in a VRF",
			[]api.Message{route(0, true, "10.96.0.0/16", special(PathUnreach))},
			route(5, true, "10.96.0.0/16", special(PathUnreach)), trapSpecialPath,
		},
		{
			"drop in a VRF",
			[]api.Message{route(5, true, "10.96.0.0/16", special(PathLocal))},
			route(5, true, "10.96.0.0/16", special(PathDrop)), trapSpecialPath,
		},
		{
			"next hop first",
			[]api.Message{route(0, true, "10.7.0.0/16", via(noIndex, "10.96.0.1"))},
			route(0, true, "10.96.0.0/16", special(PathUnreach)), trapUnreachableNextHop,
		},
		{
			"next hop last",
			[]api.Message{route(0, true, "10.96.0.0/16", special(PathProhibit)), route(0, true, "10.7.0.0/16", via(noIndex, "10.8.0.1"))},
			route(0, true, "10.7.0.0/16", via(noIndex, "10.96.0.1")), trapUnreachableNextHop,
		},
		{
			"neighbour left behind",
			[]api.Message{&interfaces_.CreateLoopback{}, neigh(2, true, "10.1.0.9"), &interfaces_.DeleteLoopback{SwIfIndex: 2}, neigh(1, true, "10.1.0.8")},
			neigh(1, true, "10.1.0.9"), trapDeadNeighbor,
		},
		{
			"an identity mapping is removed as another kind",
			[]api.Message{
				&nat44_ed.Nat44EdPluginEnableDisable{Enable: true}, &nat44_ed.Nat44AddDelIdentityMapping{IsAdd: true, IPAddress: a4("10.1.0.1"), Protocol: 6, Port: 80, SwIfIndex: interface_types.InterfaceIndex(noIndex)},
				removedAsStatic(), removedAsStatic(), removedAsStatic(),
			},
			removedAsStatic(), trapTable0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := New(Config{})
			v.AddInterface(Interface{Name: "tap0", Addresses: prefixes("10.1.0.1/24")})
			cl := dial(t, v)
			cl.must(&ip.IPTableAddDel{IsAdd: true, Table: ip.IPTable{TableID: 5}})
			cl.must(c.fine...)
			cl.ask(c.kills)
			if !cl.dead() || v.Crashed() == nil || !strings.Contains(v.Crashed().Error(), string(c.want)) {
				t.Errorf("crashed: %v", v.Crashed())
			}
		})
	}
}

// removedAsStatic removes nothing of an identity mapping, and releases a lock of table 0.
func removedAsStatic() api.Message {
	return &nat44_ed.Nat44AddDelStaticMapping{ExternalIPAddress: a4("10.1.0.1"), LocalIPAddress: a4("10.1.0.1"), Protocol: 6, ExternalPort: 80, LocalPort: 80, ExternalSwIfIndex: interface_types.InterfaceIndex(noIndex)}
}

func TestInterfaceDump(t *testing.T) {
	v := New(Config{})
	v.AddInterface(Interface{Name: "tap0", Tag: "ns/pod"})
	v.AddInterface(Interface{Name: "TAPX", Down: true})
	v.AddInterface(Interface{Name: "uplink"})
	c := dial(t, v)
	for _, d := range []struct {
		req  interfaces_.SwInterfaceDump
		want string
	}{
		{interfaces_.SwInterfaceDump{SwIfIndex: interface_types.InterfaceIndex(noIndex)}, "local0 tap0 TAPX uplink"},
		{interfaces_.SwInterfaceDump{}, "local0 tap0 TAPX uplink"},
		{interfaces_.SwInterfaceDump{SwIfIndex: 1}, "tap0"},
		{interfaces_.SwInterfaceDump{SwIfIndex: 99}, ""},
		{interfaces_.SwInterfaceDump{SwIfIndex: 99, NameFilterValid: true, NameFilter: "tap"}, "tap0 TAPX"},
	} {
		got := texts(dump[*interfaces_.SwInterfaceDetails](c, &d.req), func(d *interfaces_.SwInterfaceDetails) string { return d.InterfaceName })
		if strings.Join(got, " ") != d.want {
			t.Errorf("%+v: %v, want %s", d.req, got, d.want)
		}
	}
	list := dump[*interfaces_.SwInterfaceDetails](c, &interfaces_.SwInterfaceDump{SwIfIndex: 1})
	if d := list[0]; d.Tag != "ns/pod" || d.Flags != 3 || d.Mtu[0] != 9000 {
		t.Errorf("details %+v", d)
	}
}

// A freed sw_if_index is used again, the last freed one first, without state of the old interface.
func TestIndexReuse(t *testing.T) {
	v := New(Config{})
	c := dial(t, v)
	for range 3 {
		c.must(&interfaces_.CreateLoopback{})
	}
	c.must(&nat44_ed.Nat44EdPluginEnableDisable{Enable: true}, &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, SwIfIndex: 3}, address(3, true, "10.1.0.1/24"))
	c.must(&interfaces_.DeleteLoopback{SwIfIndex: 1}, &interfaces_.DeleteLoopback{SwIfIndex: 3})
	for _, want := range []interface_types.InterfaceIndex{3, 1, 4} {
		if r := call1[*interfaces_.CreateLoopbackReply](c, &interfaces_.CreateLoopback{}); r.SwIfIndex != want {
			t.Errorf("index %d, want %d", r.SwIfIndex, want)
		}
	}
	if l := dump[*nat44_ed.Nat44InterfaceDetails](c, &nat44_ed.Nat44InterfaceDump{}); len(l) != 0 {
		t.Errorf("roles of a deleted interface: %+v", l)
	}
	if l := dump[*ip.IPAddressDetails](c, &ip.IPAddressDump{SwIfIndex: 3}); len(l) != 0 {
		t.Errorf("addresses of a deleted interface: %+v", l)
	}
}

// An agent finds a pod by the exact route of its address, which names the interface and has the address as next hop.
func TestRouteLookupFindsPods(t *testing.T) {
	v := node(t, Config{})
	c := dial(t, v)
	r := call1[*ip.IPRouteLookupReply](c, &ip.IPRouteLookup{Exact: 1, Prefix: toPrefix(netip.MustParsePrefix("10.1.1.3/32"))})
	want := fmt.Sprintf("0:10.1.1.3/32 [0 if %d nh 10.1.1.3 table 0 weight 1 pref 0]", index(v, "pod-b"))
	if got := routeText(r.Route); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	own := call1[*ip.IPRouteLookupReply](c, &ip.IPRouteLookup{Exact: 1, Prefix: toPrefix(netip.MustParsePrefix("192.168.16.1/32"))})
	if own.Route.Paths[0].Type != fib_types.FIB_API_PATH_TYPE_LOCAL {
		t.Errorf("own address: %s", routeText(own.Route))
	}
}

// Vpp.md 3.2 B15: a static mapping adds a receive route where outside clients may ask for it. The route follows from configuration
// and is not part of Dump.
func TestNATReceiveRoute(t *testing.T) {
	v := node(t, Config{})
	c := natOn(t, v)
	before := v.Dump()
	m := &nat44_ed.Nat44AddDelStaticMapping{
		IsAdd: true, LocalIPAddress: a4("10.1.1.3"), ExternalIPAddress: a4("172.30.0.1"), Protocol: 6,
		LocalPort: 80, ExternalPort: 80, ExternalSwIfIndex: interface_types.InterfaceIndex(noIndex),
	}
	c.must(m)
	look := &ip.IPRouteLookup{Exact: 1, Prefix: toPrefix(netip.MustParsePrefix("172.30.0.1/32"))}
	r := call1[*ip.IPRouteLookupReply](c, look)
	if r.Retval != 0 || r.Route.Paths[0].Type != fib_types.FIB_API_PATH_TYPE_LOCAL {
		t.Errorf("retval %d, route %s", r.Retval, routeText(r.Route))
	}
	if strings.Contains(v.Dump(), "route 0:172.30.0.1") {
		t.Error("the NAT's own route is in Dump")
	}
	m.IsAdd = false
	c.must(m)
	if rv := c.retval(look); rv != -6 {
		t.Errorf("after the mapping has gone: %d", rv)
	}
	if d := cmp.Diff(before, v.Dump()); d != "" {
		t.Errorf("adding and deleting a mapping leaves\n%s", d)
	}
}

func TestDump(t *testing.T) {
	v := node(t, Config{})
	c := natOn(t, v)
	addRoute(t, v, "10.96.0.0/16", Path{Type: PathUnreach})
	m := lbMapping(vip, nat_types.NAT_IS_SELF_TWICE_NAT, "10.1.1.3")
	m.Tag = "ca1:x"
	c.must(m, &nat44_ed.Nat44AddDelIdentityMapping{IsAdd: true, IPAddress: a4("192.168.16.1"), Protocol: 17, Port: 4789, SwIfIndex: interface_types.InterfaceIndex(noIndex)})
	c.must(&ip.IPTableAddDel{IsAdd: true, Table: ip.IPTable{TableID: 5, Name: "five"}}, neigh(uint32(index(v, "uplink")), true, "192.168.16.100"))
	c.must(&interfaces_.CreateLoopbackInstance{IsSpecified: true, UserInstance: 1, MacAddress: [6]byte{2, 1}})
	want := `interface loop1 down mtu 9000 mac 02:01:00:00:00:00
interface loop7 up mtu 9000
  address 10.1.1.1/24
interface overlay up mtu 9000
  address 10.9.0.1/24
interface pod-a up mtu 9000 unnumbered loop7
interface pod-b up mtu 9000 unnumbered loop7
interface uplink up mtu 9000
  address 192.168.16.1/24
route 0:0.0.0.0/0 [via 192.168.16.100 uplink]
route 0:10.1.1.2/32 [via pod-a]
route 0:10.1.1.3/32 [via pod-b]
route 0:10.1.2.0/24 [via 10.9.0.2 overlay]
route 0:10.96.0.0/16 [icmp-unreach]
table ip4 5 "five"
neighbor uplink 192.168.16.100 02:00:00:00:00:00 static
nat44 enabled sessions 1000 vrf 0/0 forwarding true timeouts 300/7440/240/60
nat44 interface overlay outside inside
nat44 interface pod-a outside inside
nat44 interface pod-b outside inside
nat44 nodes overlay [nat44-ed-classify] []
nat44 nodes pod-a [nat44-ed-classify] []
nat44 nodes pod-b [nat44-ed-classify] []
nat44 nodes uplink [nat-pre-out2in] [nat-pre-in2out-output]
nat44 output-feature uplink
nat44 pool 10.1.1.254 twice-nat
nat44 pool 192.168.16.1
nat44 identity UDP 192.168.16.1:4789
nat44 lb TCP 10.96.0.10:80 self-twice-nat out2in-only tag "ca1:x"
  local 10.1.1.3:8080 weight 1
`
	if d := cmp.Diff(want, v.Dump()); d != "" {
		t.Errorf("dump (-want +got):\n%s", d)
	}
	v.Restart()
	if d := v.Dump(); strings.Contains(d, "nat44") || strings.Contains(d, "loop1 ") || !strings.Contains(d, "route 0:10.1.1.2/32 [via pod-a]") {
		t.Errorf("after a restart:\n%s", d)
	}
}

// Dump does not depend on the sequence of requests: order, indices, slots, detours.
func TestDumpIsPathIndependent(t *testing.T) {
	build := func(detour bool) string {
		v := New(Config{})
		names := []string{"tap0", "tap1"}
		if detour {
			names = []string{"gone", "tap1", "tap0"}
		}
		for _, n := range names {
			v.AddInterface(Interface{Name: n, Tag: n})
		}
		c := dial(t, v)
		c.must(&nat44_ed.Nat44EdPluginEnableDisable{Enable: true})
		add := func(l string, on bool) *nat44_ed.Nat44LbStaticMappingAddDelLocal {
			return &nat44_ed.Nat44LbStaticMappingAddDelLocal{IsAdd: on, ExternalAddr: a4(vip), ExternalPort: 80, Protocol: 6, Local: nat44_ed.Nat44LbAddrPort{Addr: a4(l), Port: 8080, Probability: 1}}
		}
		if detour {
			v.RemoveInterface("gone")
			c.must(lbMapping(vip, 0, "10.1.1.9"), add("10.1.1.4", true), add("10.1.1.3", true), add("10.1.1.9", false))
			c.must(route(0, true, "10.5.0.0/16", special(PathDrop)), route(0, false, "10.5.0.0/16"))
		} else {
			c.must(lbMapping(vip, 0, "10.1.1.3", "10.1.1.4"))
		}
		return v.Dump()
	}
	if d := cmp.Diff(build(false), build(true)); d != "" {
		t.Error(d)
	}
}

// A pipe passes packets that leave by one end to the other end, with that end's table and features.
func TestPipe(t *testing.T) {
	v := node(t, Config{})
	c := dial(t, v)
	r := call1[*pipe.PipeCreateReply](c, &pipe.PipeCreate{})
	near, far := uint32(r.PipeSwIfIndex[0]), uint32(r.PipeSwIfIndex[1])
	c.must(&ip.IPTableAddDel{IsAdd: true, Table: ip.IPTable{TableID: 1}}, &interfaces_.SwInterfaceSetTable{SwIfIndex: r.PipeSwIfIndex[1], VrfID: 1})
	c.must(address(near, true, "169.254.0.1/32"), address(far, true, "169.254.0.2/32"))
	c.must(route(0, true, "0.0.0.0/0", via(near, "")), route(1, true, "0.0.0.0/0", via(uint32(index(v, "uplink")), "192.168.16.100")))
	if got := send(t, v, "pod-a", "udp 10.1.1.2:1 -> 8.8.8.8:53"); !strings.Contains(got, "no usable path") {
		t.Errorf("a pipe that is down: %s", got)
	}
	c.must(&interfaces_.SwInterfaceSetFlags{SwIfIndex: r.SwIfIndex, Flags: 1})
	p, _ := packet.Parse("udp 10.1.1.2:1 -> 8.8.8.8:53 ttl 9")
	f := v.Send("pod-a", p)
	if len(f.Out) != 1 || f.Out[0].Interface != "uplink" || f.Out[0].Packet.TTL != 7 {
		t.Errorf("through the pipe: %+v", f)
	}
	c.must(&nat44_ed.Nat44EdPluginEnableDisable{Enable: true}, &nat44_ed.Nat44ForwardingEnableDisable{Enable: true},
		&nat44_ed.Nat44AddDelAddressRange{IsAdd: true, FirstIPAddress: a4("192.168.16.1"), LastIPAddress: a4("192.168.16.1"), VrfID: noIndex},
		&nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: true, SwIfIndex: r.PipeSwIfIndex[0]})
	if got, want := send(t, v, "pod-a", "udp 10.1.1.2:4001 -> 8.8.8.8:53"), "uplink udp 192.168.16.1:4001 -> 8.8.8.8:53"; got != want {
		t.Errorf("masqueraded by the pipe: got %s, want %s", got, want)
	}
	c.must(&pipe.PipeDelete{SwIfIndex: r.SwIfIndex})
	if got := len(v.Interfaces()); got != 6 {
		t.Errorf("%d interfaces are left: %v", got, v.Interfaces())
	}
}

// Every request that the sim accepts works on an empty VPP, too: a reply, no panic.
func TestEveryRequestIsAnswered(t *testing.T) {
	v := New(Config{})
	c := dial(t, v)
	for name, h := range messages().handlers {
		req := h.fresh()
		if _, ok := req.(*classifyapi.ClassifyTableInfo); ok { // without a table: an answer that cannot be decoded
			continue
		}
		if m, ok := req.(*cnatapi.CnatTranslationUpdate); ok { // without paths it crashes VPP
			m.Translation.Paths = make([]cnatapi.CnatEndpointTuple, 1)
			m.Translation.NPaths = 1
		}
		ctx := c.ask(req)
		if h.refusal == nil {
			end := c.ask(&memclnt.ControlPing{})
			for got := uint32(0); got != end; {
				var err error
				if _, got, err = c.next(); err != nil || got != ctx && got != end {
					t.Fatalf("%s: context %d, error %v", name, got, err)
				}
			}
			continue
		}
		for {
			m, got, err := c.next()
			if err != nil || got != ctx {
				t.Fatalf("%s: context %d, error %v", name, got, err)
			}
			if _, more := m.(*nat44_ed.Nat44EdOutputInterfaceDetails); !more {
				break
			}
		}
	}
	if v.Crashed() != nil {
		t.Error(v.Crashed())
	}
}

func TestWrites(t *testing.T) {
	for name, want := range map[string]bool{
		"acl_dump": false, "classify_table_ids": false, "control_ping": false, "sockclnt_delete": false, "nat44_show_running_config": false, "cli_inband": false,
		"acl_add_replace": true, "classify_add_del_session": true, "ip_route_add_del": true, "never_heard_of": true,
	} {
		if got := Writes(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestCountsAreVerified: the decoder allocates an array by a count of 32 bits before it reads the elements. Such a request needs a check, or four
// bytes of a client end the sim.
func TestCountsAreVerified(t *testing.T) {
	for name, h := range messages().handlers {
		if array := counted(reflect.TypeOf(h.fresh()).Elem()); array != "" && h.fits == nil {
			t.Errorf("%s: %s has a count of 32 bits that nothing compares with the message", name, array)
		}
	}
}

// counted returns the name of an array of a struct, or of a struct in it, whose length is a uint32 of the message; "": none.
func counted(m reflect.Type) string {
	counts := map[string]bool{}
	for i := range m.NumField() {
		f := m.Field(i)
		tag := f.Tag.Get("binapi")
		_, name, _ := strings.Cut(tag, "name=")
		name, _, _ = strings.Cut(name, ",")
		counts[name] = f.Type.Kind() == reflect.Uint32
		_, length, sized := strings.Cut(tag, "[")
		length, _, _ = strings.Cut(length, "]")
		switch {
		case f.Type.Kind() == reflect.Slice && sized && counts[length]:
			return f.Name
		case f.Type.Kind() == reflect.Struct:
			if inner := counted(f.Type); inner != "" {
				return f.Name + "." + inner
			}
		}
	}
	return ""
}
