package vppagent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/policer"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/abf"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/punt"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// law is the test of a kind of value: one value of it, another one with the same key, and the values they need.
type law struct {
	kind     string // the descriptor's name
	one, two proto.Message
	needs    []proto.Message
	// stays: a deletion leaves a trace in VPP, on purpose.
	stays bool
	// real: TestVPPLaws checks it on a real VPP, too.
	real bool
}

func laws() []law {
	global := &nat.Nat44Global{Forwarding: true}
	twice := &nat.Nat44AddressPool{VrfId: ^uint32(0), FirstIp: "10.1.1.254", TwiceNat: true}
	vrf := &l3.VrfTable{Id: 7, Label: "seven"}
	loop := func(change func(*interfaces.Interface)) *interfaces.Interface {
		m := &interfaces.Interface{Name: "loop", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, PhysAddress: "02:fe:00:00:00:07", Mtu: 1450}
		change(m)
		return m
	}
	peer := &interfaces.Interface{Name: "peer", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true}
	domain := func(change func(*l2.BridgeDomain)) *l2.BridgeDomain {
		m := &l2.BridgeDomain{
			Name: "vxlanBD", Flood: true, UnknownUnicastFlood: true, Forward: true, Learn: true, MacAge: 5,
			ArpTerminationTable: []*l2.BridgeDomain_ArpTerminationEntry{
				{IpAddress: "10.9.0.1", PhysAddress: "02:fe:00:00:00:aa"}, {IpAddress: "2001:db8::1", PhysAddress: "02:fe:00:00:00:bb"},
			},
		}
		change(m)
		return m
	}
	tunnel := func(change func(*interfaces.Interface)) *interfaces.Interface {
		m := &interfaces.Interface{
			Name: "vxlan2", Type: interfaces.Interface_VXLAN_TUNNEL, Enabled: true, PhysAddress: "02:fe:00:00:00:0a", Mtu: 1450,
			Link: &interfaces.Interface_Vxlan{Vxlan: &interfaces.VxlanLink{SrcAddress: "192.168.16.1", DstAddress: "192.168.16.2", Vni: 10}},
		}
		change(m)
		return m
	}
	vlan := func(change func(*interfaces.Interface)) *interfaces.Interface {
		m := &interfaces.Interface{
			Name: "vlan", Type: interfaces.Interface_SUB_INTERFACE, Enabled: true, Mtu: 1450, IpAddresses: []string{"10.77.0.1/24"},
			Link: &interfaces.Interface_Sub{Sub: &interfaces.SubInterface{ParentName: "peer", SubId: 100}},
		}
		change(m)
		return m
	}
	third := &interfaces.Interface{Name: "third", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true}
	bridged := domain(func(m *l2.BridgeDomain) {
		m.Interfaces = []*l2.BridgeDomain_Interface{{Name: "loop", BridgedVirtualInterface: true}, {Name: "peer"}}
	})
	host := &interfaces.Interface{
		Name: "host", Type: interfaces.Interface_TAP, Enabled: true, PhysAddress: "02:fe:00:00:00:09", IpAddresses: []string{"172.30.1.1/24"},
		Link: &interfaces.Interface_Tap{Tap: &interfaces.TapLink{HostIfName: "vpp1"}},
	}
	host2 := &interfaces.Interface{Name: "loop2", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, IpAddresses: []string{"2001:db8::1/64"}}
	permit := func(ports ...uint32) *acl.ACL {
		return accessList("web", rule(acl.ACL_Rule_REFLECT, "tcp", "10.1.1.0/24", "10.1.2.3/32", ports...), rule(acl.ACL_Rule_DENY, "", "", ""))
	}
	forward := func(change func(*abf.ABF)) *abf.ABF {
		m := &abf.ABF{
			Index: 7, AclName: "web",
			ForwardingPaths: []*abf.ABF_ForwardingPath{{NextHopIp: "10.5.0.1", InterfaceName: "peer"}, {NextHopIp: "10.6.0.1", InterfaceName: "third", Weight: 3}},
		}
		change(m)
		return m
	}
	asked := func(priority uint32, ifs ...string) func(*abf.ABF) {
		return func(m *abf.ABF) {
			for _, i := range ifs {
				m.AttachedInterfaces = append(m.AttachedInterfaces, &abf.ABF_AttachedInterface{InputInterface: i, Priority: priority})
			}
		}
	}
	both := &contivacl.InterfaceACLs{Interface: "host", Input: []string{"web"}, Output: []string{"db", "web"}}
	return append(rangesLaws(host, attach(permit(80, 80), []string{"host"}, nil)), []law{
		{kind: "acl", one: permit(80, 80), two: permit(80, 90)},
		{kind: "acl", one: permit(80, 80), two: &acl.ACL{Name: "web"}},
		{kind: "acl", needs: []proto.Message{host}, one: attach(permit(80, 80), []string{"host"}, nil), two: attach(permit(80, 80), nil, []string{"host"})},
		{
			kind: "interface-acls", needs: []proto.Message{host, permit(80, 80), accessList("db")}, one: both,
			two: &contivacl.InterfaceACLs{Interface: "host", Output: []string{"web", "db"}},
		},
		{kind: "acl-deny", needs: []proto.Message{host}, one: attach(permit(80, 80), []string{"host"}, nil), two: attach(accessList("web"), nil, []string{"host"})},
		{kind: "vrf-table", one: vrf, two: &l3.VrfTable{Id: 7, Label: "eight"}},
		{kind: "interface", one: loop(func(*interfaces.Interface) {}), two: loop(func(m *interfaces.Interface) { m.Enabled, m.Mtu = false, 1500 })},
		{kind: "interface", one: host, two: func() proto.Message { // another link: made again
			m := proto.Clone(host).(*interfaces.Interface)
			m.GetTap().HostIfName = "vpp2"
			return m
		}()},
		{
			kind: "interface", real: true, needs: []proto.Message{&l3.VrfTable{Id: 7, Label: "seven"}}, one: tunnel(func(*interfaces.Interface) {}),
			two: tunnel(func(m *interfaces.Interface) { m.Enabled, m.Mtu, m.PhysAddress = false, 1400, "02:fe:00:00:00:0b" }),
		},
		{
			kind: "interface", real: true, needs: []proto.Message{&l3.VrfTable{Id: 7, Label: "seven"}, peer},
			one: tunnel(func(m *interfaces.Interface) { m.Vrf, m.GetVxlan().Vni = 7, 1<<24-1 }),
			two: tunnel(func(m *interfaces.Interface) {
				m.Enabled, m.GetVxlan().DstAddress, m.GetVxlan().Multicast = false, "239.1.1.1", "peer"
			}),
		},
		{
			kind: "interface", real: true, needs: []proto.Message{peer, third}, one: vlan(func(*interfaces.Interface) {}),
			two: vlan(func(m *interfaces.Interface) { m.Enabled, m.Mtu = false, 1400 }),
		},
		{
			kind: "interface", real: true, needs: []proto.Message{peer, third}, one: vlan(func(*interfaces.Interface) {}),
			two: vlan(func(m *interfaces.Interface) { m.GetSub().ParentName, m.GetSub().SubId = "third", 4095 }),
		},
		{
			kind: "address", one: loop(func(m *interfaces.Interface) { m.IpAddresses = []string{"10.9.0.1/24", "2001:db8::1/64"} }),
			two: loop(func(m *interfaces.Interface) { m.IpAddresses = []string{"10.9.0.2/24"} }),
		},
		{
			kind: "unnumbered", real: true, needs: []proto.Message{lender("aa", "10.88.0.1/32", "2001:db8:88::1/128"), lender("ab", "10.89.0.1/32")},
			one: loop(func(m *interfaces.Interface) { m.Unnumbered = &interfaces.Interface_Unnumbered{InterfaceWithIp: "aa"} }),
			two: loop(func(m *interfaces.Interface) { m.Unnumbered = &interfaces.Interface_Unnumbered{InterfaceWithIp: "ab"} }),
		},
		{kind: "interface", one: packets(1450), two: packets(1400)},
		{kind: "interface", one: packets(1450), two: packets(9000)}, // larger frames: made again
		{
			kind: "interface-vrf", needs: []proto.Message{vrf}, one: loop(func(m *interfaces.Interface) { m.IpAddresses, m.Vrf = []string{"10.9.0.1/24"}, 7 }),
			two: loop(func(m *interfaces.Interface) { m.IpAddresses = []string{"10.9.0.1/24"} }),
		},
		{
			kind: "arp", needs: []proto.Message{host}, one: &l3.ARPEntry{Interface: "host", IpAddress: "172.30.1.2", PhysAddress: "02:fe:00:00:00:01", Static: true},
			two: &l3.ARPEntry{Interface: "host", IpAddress: "172.30.1.2", PhysAddress: "02:fe:00:00:00:02"},
		},
		{
			kind: "route", needs: []proto.Message{host}, one: &l3.Route{DstNetwork: "10.2.0.0/16", OutgoingInterface: "host", NextHopAddr: "172.30.1.2"},
			two: &l3.Route{DstNetwork: "10.2.0.0/16", OutgoingInterface: "host", NextHopAddr: "172.30.1.2", Weight: 5},
		},
		{
			kind: "route", needs: []proto.Message{vrf}, one: &l3.Route{DstNetwork: "10.4.0.0/16", Type: l3.Route_INTER_VRF, ViaVrfId: 7},
			two: &l3.Route{DstNetwork: "10.4.0.0/16", Type: l3.Route_DROP},
		},
		{kind: "reject-route", one: &contivl3.RejectRoute{DstNetwork: "10.96.0.1/32"}, two: &contivl3.RejectRoute{DstNetwork: "10.96.0.1/32", Action: contivl3.RejectRoute_PROHIBIT}},
		{kind: "reject-route", one: lastResort("10.1.1.0/24"), two: &contivl3.RejectRoute{DstNetwork: "10.1.1.0/24", Action: contivl3.RejectRoute_DROP}},
		{
			kind: "bridge-domain", real: true, one: domain(func(*l2.BridgeDomain) {}), two: domain(func(m *l2.BridgeDomain) {
				m.Learn, m.ArpTermination, m.MacAge = false, true, 0
				m.ArpTerminationTable[0].PhysAddress = "02:fe:00:00:00:cc"
				m.ArpTerminationTable[1].IpAddress = "2001:db8::2"
			}),
		},
		{
			kind: "bridge-member", real: true, needs: []proto.Message{peer, loop(func(*interfaces.Interface) {})},
			one: domain(func(m *l2.BridgeDomain) {
				m.Interfaces = []*l2.BridgeDomain_Interface{{Name: "loop", BridgedVirtualInterface: true}, {Name: "peer", SplitHorizonGroup: 1}}
			}),
			two: domain(func(m *l2.BridgeDomain) {
				m.Interfaces = []*l2.BridgeDomain_Interface{{Name: "peer", BridgedVirtualInterface: true}, {Name: "loop"}}
			}),
		},
		{
			kind: "l2-fib", real: true, needs: []proto.Message{peer, loop(func(*interfaces.Interface) {}), bridged},
			one: &l2.FIBEntry{PhysAddress: "12:2b:c0:a8:10:02", BridgeDomain: "vxlanBD", OutgoingInterface: "peer", StaticConfig: true},
			two: &l2.FIBEntry{PhysAddress: "12:2b:c0:a8:10:02", BridgeDomain: "vxlanBD", Action: l2.FIBEntry_DROP, StaticConfig: true},
		},
		{
			kind: "l2-fib", real: true, needs: []proto.Message{peer, loop(func(*interfaces.Interface) {}), bridged},
			one: &l2.FIBEntry{PhysAddress: "12:2B:C0:A8:10:02", BridgeDomain: "vxlanBD", OutgoingInterface: "peer"},
			two: &l2.FIBEntry{PhysAddress: "12:2B:C0:A8:10:02", BridgeDomain: "vxlanBD", OutgoingInterface: "loop", BridgedVirtualInterface: true},
		},
		{
			kind: "xconnect", real: true, needs: []proto.Message{peer, third, loop(func(*interfaces.Interface) {})},
			one: &l2.XConnectPair{ReceiveInterface: "loop", TransmitInterface: "peer"}, two: &l2.XConnectPair{ReceiveInterface: "loop", TransmitInterface: "third"},
		},
		{
			kind: "span", real: true, needs: []proto.Message{peer, third},
			one: &interfaces.Span{InterfaceFrom: "peer", InterfaceTo: "third", Direction: interfaces.Span_RX},
			two: &interfaces.Span{InterfaceFrom: "peer", InterfaceTo: "third", Direction: interfaces.Span_BOTH},
		},
		{
			kind: "span", real: true, needs: []proto.Message{peer, third},
			one: &interfaces.Span{InterfaceFrom: "peer", InterfaceTo: "third", Direction: interfaces.Span_TX},
			two: &interfaces.Span{InterfaceFrom: "peer", InterfaceTo: "third", Direction: interfaces.Span_TX, IsL2: true},
		},
		{
			kind: "policer", real: true, needs: []proto.Message{peer}, one: &policer.Policer{Interface: "peer", Rate: 8000, Burst: 100_000},
			two: &policer.Policer{Interface: "peer", Rate: 9000, Burst: 100_000},
		},
		{
			kind: "policer", real: true, needs: []proto.Message{peer}, one: &policer.Policer{Interface: "peer", Direction: policer.Policer_OUTPUT, Rate: 8000, Burst: 100_000},
			two: &policer.Policer{Interface: "peer", Direction: policer.Policer_OUTPUT, Rate: 8000, Burst: 50_000},
		},
		{
			kind: "proxy-arp", real: true, needs: []proto.Message{vrf},
			one: &l3.ProxyARP{Ranges: []*l3.ProxyARP_Range{{FirstIpAddr: "10.1.0.1", LastIpAddr: "10.1.0.9"}, {FirstIpAddr: "10.2.0.1", LastIpAddr: "10.2.0.1"}}},
			two: &l3.ProxyARP{Ranges: []*l3.ProxyARP_Range{{FirstIpAddr: "10.1.0.1", LastIpAddr: "10.1.0.9", VrfId: 7}, {FirstIpAddr: "10.2.0.1", LastIpAddr: "10.2.0.1"}}},
		},
		{
			kind: "proxy-arp-interface", real: true, needs: []proto.Message{peer, third},
			one: &l3.ProxyARP{Interfaces: []*l3.ProxyARP_Interface{{Name: "peer"}}}, two: &l3.ProxyARP{Interfaces: []*l3.ProxyARP_Interface{{Name: "third"}}},
		},
		{
			kind: "ip-scan-neighbor", real: true, one: &l3.IPScanNeighbor{Mode: l3.IPScanNeighbor_BOTH, StaleThreshold: 4},
			two: &l3.IPScanNeighbor{Mode: l3.IPScanNeighbor_IPV6, StaleThreshold: 9},
		},
		{ // paths change in place
			kind: "abf", real: true, needs: []proto.Message{peer, third, permit(80, 80)}, one: forward(asked(10, "third")),
			two: forward(func(m *abf.ABF) {
				m.AttachedInterfaces = []*abf.ABF_AttachedInterface{{InputInterface: "third", Priority: 10}}
				m.ForwardingPaths[0] = &abf.ABF_ForwardingPath{InterfaceName: "peer", Weight: 1}
			}),
		},
		{ // made anew
			kind: "abf", real: true, needs: []proto.Message{peer, third, permit(80, 80), accessList("db")}, one: forward(asked(10, "third")),
			two: forward(func(m *abf.ABF) {
				asked(10, "third")(m)
				m.ForwardingPaths[1].Weight, m.ForwardingPaths[0].Preference = 4, 1
			}),
		},
		{
			kind: "abf", real: true, needs: []proto.Message{peer, third, permit(80, 80), accessList("db")}, one: forward(asked(10, "third")),
			two: forward(func(m *abf.ABF) { asked(10, "third")(m); m.AclName = "db" }),
		},
		{
			kind: "abf", real: true, needs: []proto.Message{peer, permit(80, 80)},
			one: &abf.ABF{
				Index: 0, AclName: "web", ForwardingPaths: []*abf.ABF_ForwardingPath{{NextHopIp: "2001:db8::1"}, {InterfaceName: "peer", Weight: 1, Dvr: true}},
				AttachedInterfaces: []*abf.ABF_AttachedInterface{{InputInterface: "peer", IsIpv6: true}},
			},
			two: &abf.ABF{Index: 0, AclName: "web", ForwardingPaths: []*abf.ABF_ForwardingPath{{NextHopIp: "2001:db8::1", InterfaceName: "peer"}}},
		},
		{
			kind: "abf-interface", real: true, needs: []proto.Message{peer, third, permit(80, 80)},
			one: forward(asked(10, "peer")), two: forward(asked(0, "peer", "third")),
		},
		{
			kind: "punt-redirect", real: true, needs: []proto.Message{peer, third},
			one: &punt.IPRedirect{L3Protocol: punt.L3Protocol_IPV4, TxInterface: "peer", NextHop: "10.5.0.1"},
			two: &punt.IPRedirect{L3Protocol: punt.L3Protocol_IPV4, TxInterface: "peer", NextHop: "10.5.0.2", RxInterface: "third"},
		},
		{
			kind: "punt-redirect", real: true, needs: []proto.Message{peer, third},
			one: &punt.IPRedirect{L3Protocol: punt.L3Protocol_IPV6, TxInterface: "peer", NextHop: "2001:db8::1", RxInterface: "third"},
			two: &punt.IPRedirect{L3Protocol: punt.L3Protocol_IPV6, TxInterface: "peer", NextHop: "2001:db8::2", RxInterface: "peer"},
		},
		{
			kind: "punt-to-host", real: true, one: &punt.ToHost{L3Protocol: punt.L3Protocol_ALL, L4Protocol: punt.L4Protocol_UDP, Port: 53, SocketPath: "/run/dns.sock"},
			two: &punt.ToHost{L3Protocol: punt.L3Protocol_ALL, L4Protocol: punt.L4Protocol_UDP, Port: 53, SocketPath: "/run/dns2.sock"},
		},
		{
			kind: "punt-to-host", real: true, one: &punt.ToHost{L3Protocol: punt.L3Protocol_IPV6, L4Protocol: punt.L4Protocol_UDP, Port: 65534, SocketPath: "/run/" + strings.Repeat("a", 102)},
			two: &punt.ToHost{L3Protocol: punt.L3Protocol_IPV6, L4Protocol: punt.L4Protocol_UDP, Port: 65534, SocketPath: "/run/b"},
		},
		{
			kind: "punt-exception", real: true, one: &punt.Exception{Reason: "ipsec4-no-such-tunnel", SocketPath: "/run/ike.sock"},
			two: &punt.Exception{Reason: "ipsec4-no-such-tunnel", SocketPath: "/run/other.sock"},
		},
		{
			kind: "cnat-translation", real: true, one: translation("2001:db8:96::10", 80, "2001:db8:1::2", "2001:db8:1::3"),
			two: translation("2001:db8:96::10", 80, "2001:db8:1::3", "2001:db8:1::3", "2001:db8:1::4"),
		},
		{
			kind: "cnat-translation", real: true, one: translation("10.96.0.10", 80, "10.1.1.2"),
			two: func() proto.Message { // fields that VPP takes only at creation: recreated
				m := translation("10.96.0.10", 80, "10.1.1.2")
				m.LoadBalancing, m.FlowHash = cnat.LoadBalancing_MAGLEV, []cnat.FlowHashField{cnat.FlowHashField_SRC_ADDRESS}
				return m
			}(),
		},
		{
			kind: "cnat-translation", real: true, needs: []proto.Message{host2}, one: &cnat.Translation{
				Vip: &cnat.Endpoint{Interface: "loop2", Family: cnat.Family_IPV6, Port: 30080}, Protocol: cnat.Protocol_UDP, RealAddress: true,
				Paths: []*cnat.Path{{Destination: &cnat.Endpoint{Address: "2001:db8:1::2", Port: 53}, Source: &cnat.Endpoint{Address: "2001:db8:1::1"}, NoNat: true}},
			},
			two: &cnat.Translation{
				Vip: &cnat.Endpoint{Interface: "loop2", Family: cnat.Family_IPV6, Port: 30080}, Protocol: cnat.Protocol_UDP, RealAddress: true,
				Paths: []*cnat.Path{{Destination: &cnat.Endpoint{Address: "2001:db8:1::2", Port: 53}}},
			},
		},
		{
			kind: "cnat-snat-policy", real: true,
			one: &cnat.SnatPolicy{Kind: cnat.SnatPolicy_KUBERNETES, Ipv6Address: "2001:db8::1", ExcludedPrefixes: []string{"10.1.0.0/16", "2001:db8:1::/48"}},
			two: &cnat.SnatPolicy{Kind: cnat.SnatPolicy_PREFIXES, Ipv4Address: "192.0.2.1", ExcludedPrefixes: []string{"10.1.0.0/16", "2001:db8:2::1/128"}},
		},
		{ // an address ends, and the kind stays
			kind: "cnat-snat-policy", real: true,
			one: &cnat.SnatPolicy{Kind: cnat.SnatPolicy_KUBERNETES, Ipv6Address: "2001:db8::1", ExcludedPrefixes: []string{"10.1.0.0/16"}},
			two: &cnat.SnatPolicy{Kind: cnat.SnatPolicy_KUBERNETES, Ipv4Address: "192.0.2.1", Ipv6Address: "2001:db8::1", ExcludedPrefixes: []string{"10.1.0.0/16", "10.2.0.0/16"}},
		},
		{
			kind: "cnat-interface", real: true, // in tables, which VPP 26.06 has only with a policy
			needs: []proto.Message{host2, &cnat.SnatPolicy{Kind: cnat.SnatPolicy_KUBERNETES, Ipv6Address: "fd00:1:1::99"}},
			one:   &cnat.Interface{Name: "loop2", Ipv6: true, IncludeIpv6: true, Pod: true},
			two:   &cnat.Interface{Name: "loop2", Ipv4: true, Ipv6: true, IncludeIpv4: true, Host: true},
		},
		{kind: "nat44-global", one: global, two: &nat.Nat44Global{}, stays: true},
		{kind: "nat44-settings", needs: []proto.Message{global}, one: &contivnat.Nat44Settings{Udp: 20}, two: &contivnat.Nat44Settings{Icmp: 20}},
		{
			kind: "nat44-pool", needs: []proto.Message{global}, one: &nat.Nat44AddressPool{Name: "p", VrfId: ^uint32(0), FirstIp: "10.0.0.1", LastIp: "10.0.0.3"},
			two: &nat.Nat44AddressPool{Name: "p", VrfId: ^uint32(0), FirstIp: "10.0.0.2", LastIp: "10.0.0.4"},
		},
		{
			kind: "nat44-pool", needs: []proto.Message{global}, one: &nat.Nat44AddressPool{Name: "p", VrfId: ^uint32(0), FirstIp: "10.0.0.1"},
			two: &nat.Nat44AddressPool{Name: "p", VrfId: ^uint32(0), FirstIp: "10.0.0.1", TwiceNat: true},
		},
		{
			kind: "nat44-interface", needs: []proto.Message{global, host}, one: &nat.Nat44Interface{Name: "host", NatInside: true, NatOutside: true},
			two: &nat.Nat44Interface{Name: "host", OutputFeature: true},
		},
		{
			kind: "dnat44", needs: []proto.Message{global, twice}, one: dnat("default/web", "10.96.0.1", 80, "10.1.1.1:80", "10.1.1.2:80"),
			two: dnat("default/web", "10.96.0.1", 80, "10.1.1.1:80", "10.1.1.3:80"),
		},
		{kind: "dnat44", needs: []proto.Message{global, twice}, one: dnat("default/web", "10.96.0.1", 80, "10.1.1.1:80"), two: dnat("default/web", "10.96.0.2", 80)},
		// last: VPP's records of a deleted interface stay until its index is used again, and then a resync removes them
		{
			kind: "sctp-ports", real: true, needs: []proto.Message{peer}, one: sctpPorts("peer", in(80), nil),
			two: sctpPorts("peer", in(80, 81), []*contivacl.SCTPPorts_Rule{sctpRule(true, "::/0", "2001:db8::/32", 0)}),
		},
		{
			kind: "sctp-filter", real: true, needs: []proto.Message{peer, sctpPorts("peer", in(80), nil), companion("peer", true)},
			one: lists("peer", []string{kv.SCTPPortsACL("peer", true)}, nil), two: lists("peer", nil, nil),
		},
	}...)
}

// packets is an af_packet interface with an MTU.
func packets(mtu uint32) *interfaces.Interface {
	return &interfaces.Interface{
		Name: "packets", Type: interfaces.Interface_AF_PACKET, Enabled: true, Mtu: mtu,
		Link: &interfaces.Interface_Afpacket{Afpacket: &interfaces.AfpacketLink{HostIfName: "eth7"}},
	}
}

// lender is a loopback with addresses that other interfaces use.
func lender(name string, addrs ...string) *interfaces.Interface {
	return &interfaces.Interface{Name: name, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, IpAddresses: addrs}
}

// translation leads TCP to port 8080 of backends.
func translation(vip string, port uint32, backends ...string) *cnat.Translation {
	m := &cnat.Translation{Vip: &cnat.Endpoint{Address: vip, Port: port}, RealAddress: true}
	for _, b := range backends {
		m.Paths = append(m.Paths, &cnat.Path{Destination: &cnat.Endpoint{Address: b, Port: 8080}})
	}
	return m
}

// TestLaws checks for every kind of value: VPP has what the agent created, updated and deleted; both the agent that made an
// object and a fresh agent recognise it, so that nothing is written twice.
func TestLaws(t *testing.T) {
	covered, used := map[string]bool{}, map[string]bool{"Options": true, "*cnat.facts.newer": true} // of the configuration, and of VPP 26.06 alone
	for _, law := range laws() {
		covered[law.kind] = true
		t.Run(law.kind, func(t *testing.T) {
			l := newLab(t, vppagent.Config{})
			l.allConfigured(l.put(law.needs...))
			l.writes()
			before := l.sim.Dump()

			l.must("create", law.one)
			l.copied(used)
			created := l.sim.Dump()
			if created == before && law.kind != "nat44-global" {
				t.Fatalf("creating changed nothing in\n%s", before)
			}
			l.must("update", law.two)
			updated := l.sim.Dump()
			if updated == created {
				t.Fatalf("updating changed nothing in\n%s", created)
			}
			l.must("update back", law.one)
			if got := l.sim.Dump(); got != created {
				t.Fatalf("there and back:\n%s", cmp.Diff(created, got))
			}
			l.restartVPP()
			l.must("restart of VPP", law.one)
			if got := l.sim.Dump(); got != created {
				t.Fatalf("after a restart of VPP:\n%s", cmp.Diff(created, got))
			}
			l.allConfigured(l.del(kv.Key(law.one)))
			if got := l.sim.Dump(); got != before && !law.stays {
				t.Fatalf("deleting leaves something:\n%s", cmp.Diff(before, got))
			}
		})
	}
	for _, d := range all.All() {
		if !covered[d.Name] {
			t.Errorf("no law for %s", d.Name)
		}
	}
	for field, filled := range used {
		if !filled {
			t.Errorf("no law makes the agent know %s, so no test copies it", field)
		}
	}
}

// copied compares the copy on which Plan works with the agent's state, and records the fields in use.
func (l *lab) copied(used map[string]bool) {
	l.t.Helper()
	problems, fields := l.agent.CopyWorld()
	for _, p := range problems {
		l.t.Errorf("copy of the world: %s", p)
	}
	for field, filled := range fields {
		used[field] = used[field] || filled
	}
}

// must commits a value, and checks that this agent and a fresh one find it.
func (l *lab) must(what string, m proto.Message) {
	l.t.Helper()
	l.allConfigured(l.put(m))
	if what != "restart of VPP" && len(l.writes()) == 0 {
		l.t.Fatalf("%s: nothing written", what)
	}
	l.writes()
	l.allConfigured(l.resync())
	l.quiet(what + ", resync")
	old := l.agent
	l.restartAgent()
	l.allConfigured(l.resync())
	l.quiet(what + ", restart of the agent")
	l.agent = old
	for _, s := range l.agent.Snapshot().Values() {
		if s.Key == kv.Key(m) && (s.State != event.Configured || cmp.Diff(m, s.Value, protocmp.Transform()) != "") {
			l.t.Fatalf("%s: status %+v", what, s)
		}
	}
}

// TestMessageIsInverse: the journal stores the result of Message, and Compile reads it.
func TestMessageIsInverse(t *testing.T) {
	kinds := all.All()
	for _, law := range laws() {
		for _, m := range []proto.Message{law.one, law.two} {
			key := kv.Key(m)
			i := slices.IndexFunc(kinds, func(d *descriptor.Descriptor) bool { return d.Has(key) })
			state, err := kinds[i].Compile(key, m)
			if err != nil {
				t.Fatal(err)
			}
			back := kinds[i].Message(state)
			if kv.Key(back) != key {
				t.Errorf("%s: Message has the key %s", key, kv.Key(back))
			}
			again, err := kinds[i].Compile(key, back)
			if err != nil || !kinds[i].Equal(state, again) {
				t.Errorf("%s: %v: not the same: %v", key, err, cmp.Diff(m, back, protocmp.Transform()))
			}
		}
	}
}

// Every key of the models has at most one descriptor.
func TestKeysHaveOneDescriptor(t *testing.T) {
	for _, m := range kv.Models() {
		key := m.Prefix
		if strings.HasSuffix(key, "/") {
			key += "x"
		}
		var names []string
		for _, d := range all.All() {
			if d.Has(key) {
				names = append(names, d.Name)
			}
		}
		if len(names) > 1 {
			t.Errorf("%s: %v", key, names)
		}
	}
}
