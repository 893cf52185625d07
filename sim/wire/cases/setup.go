package cases

import (
	"net/netip"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/contiv-agent/contiv-agent/model"
)

// The interfaces, by number: two subnets, of which B has a small MTU; the underlay of a tunnel; a port of a bridge; a pod behind an unnumbered
// interface; a pod whose interface has a route, but no address yet; and one behind an unnumbered interface without IPv6.
const (
	A, B, Underlay, Bridged, Pod, New, Only4 = 1, 2, 3, 4, 5, 6, 7
	Last                                     = Only4
)

const (
	smallMTU = 1300
	domain   = 7
	vni      = 96
	none     = ^uint32(0)
	loopBVI  = 70
	loopGate = 71
)

// VPPMAC and HostMAC are the addresses of the two ends of interface n.
func VPPMAC(n int) [6]byte { return [6]byte{2, 0xfe, 0, 0, 0, byte(n)} }

// HostMAC is the address of the host behind interface n.
func HostMAC(n int) [6]byte { return [6]byte{2, 0xca, 0, 0, 0, byte(n)} }

var bviMAC = [6]byte{2, 0xfe, 0xbb, 0, 0, 7}

// Requests are the configuration: Loopbacks first, then the rest, which gets the indices of interfaces and of the two loopbacks.
func Loopbacks() []api.Message {
	return []api.Message{
		&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: loopBVI, MacAddress: bviMAC},
		&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: loopGate},
	}
}

// Tunnel is the request for the tunnel.
func Tunnel() *vxlan.VxlanAddDelTunnelV3 {
	return &vxlan.VxlanAddDelTunnelV3{
		IsAdd: true, Instance: 1, SrcAddress: address("192.168.16.1"), DstAddress: address("192.168.16.2"), Vni: vni, DecapNextIndex: none,
		McastSwIfIndex: interface_types.InterfaceIndex(none),
	}
}

// Redirects asks for the redirects that there are: a guard wants to know them.
func Redirects() api.Message {
	return &ip.IPPuntRedirectV2Dump{SwIfIndex: interface_types.InterfaceIndex(none)}
}

// Rest is the rest of the configuration. at are the indices of the interfaces by number; at[0] is that of the tunnel.
func Rest(at [Last + 1]interface_types.InterfaceIndex, bvi, gate interface_types.InterfaceIndex) []api.Message {
	out := []api.Message{up(bvi), up(gate), up(at[0])}
	for _, i := range at[1:] {
		if out = append(out, up(i)); i != at[New] && i != at[Only4] {
			out = append(out, &ip.SwInterfaceIP6EnableDisable{SwIfIndex: i, Enable: true})
		}
	}
	for _, a := range []struct {
		i interface_types.InterfaceIndex
		p string
	}{
		{at[A], "10.1.0.1/24"},
		{at[A], "fd00:1::1/64"},
		{at[B], "10.2.0.1/24"},
		{at[B], "fd00:2::1/64"},
		{at[Underlay], "192.168.16.1/24"},
		{bvi, "10.7.0.1/24"},
		{gate, "169.254.1.1/32"},
	} {
		p := netip.MustParsePrefix(a.p)
		out = append(out, &interfaces.SwInterfaceAddDelAddress{SwIfIndex: a.i, IsAdd: true, Prefix: ip_types.AddressWithPrefix(prefix(p))})
	}
	out = append(out,
		&interfaces.SwInterfaceSetMtu{SwIfIndex: at[B], Mtu: []uint32{smallMTU, 0, 0, 0}},
		&interfaces.SwInterfaceSetUnnumbered{SwIfIndex: gate, UnnumberedSwIfIndex: at[Pod], IsAdd: true},
		neighbor(at[Underlay], "192.168.16.2", HostMAC(Underlay)),
		neighbor(at[A], "10.1.0.9", [6]byte{2, 0xca, 0, 0, 9, A}),
		&interfaces.SwInterfaceSetUnnumbered{SwIfIndex: gate, UnnumberedSwIfIndex: at[Only4], IsAdd: true},
		route("10.9.0.2/32", "10.9.0.2", at[Pod]),
		route("10.9.0.6/32", "10.9.0.6", at[New]),
		route("fd00:9::6/128", "fd00:9::6", at[New]),
		route("fd00:9::7/128", "fd00:9::7", at[Only4]),
		&ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{Prefix: prefix(netip.MustParsePrefix("10.66.0.0/16")), NPaths: 1, Paths: []fib_types.FibPath{
			{SwIfIndex: none, Weight: 1, Type: fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH},
		}}},
		&ip.AddDelIPPuntRedirectV2{IsAdd: true, Punt: ip.PuntRedirectV2{
			RxSwIfIndex: interface_types.InterfaceIndex(none), NPaths: 1, Paths: []fib_types.FibPath{step("10.1.0.9", at[A])},
		}},
		&l2.BridgeDomainAddDelV2{BdID: domain, IsAdd: true, Learn: true, Forward: true, Flood: true, UuFlood: true},
		&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: at[Bridged], BdID: domain, Enable: true},
		&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: at[0], BdID: domain, Shg: 1, Enable: true},
		&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: bvi, BdID: domain, PortType: l2.L2_API_PORT_TYPE_BVI, Enable: true},
	)
	return out
}

// NAT is the configuration of the cases of NATList: a load-balanced mapping of 10.96.0.10:80, and one of UDP.
func NAT(at [Last + 1]interface_types.InterfaceIndex) []api.Message {
	mapping := func(proto model.Protocol, port, local uint16) api.Message {
		backend := nat44_ed.Nat44LbAddrPort{Addr: ip_types.IP4Address{10, 2, 0, 2}, Port: local, Probability: 1}
		other := backend // VPP wants two
		other.Addr[3], other.Probability = 3, 0
		return &nat44_ed.Nat44AddDelLbStaticMapping{
			IsAdd: true, Flags: nat_types.NAT_IS_OUT2IN_ONLY, ExternalAddr: ip_types.IP4Address{10, 96, 0, 10}, ExternalPort: port,
			Protocol: uint8(proto), Locals: []nat44_ed.Nat44LbAddrPort{backend, other},
		}
	}
	out := []api.Message{&nat44_ed.Nat44EdPluginEnableDisable{Enable: true}, &nat44_ed.Nat44ForwardingEnableDisable{Enable: true}}
	for _, i := range []interface_types.InterfaceIndex{at[A], at[B]} {
		for _, flag := range []nat_types.NatConfigFlags{nat_types.NAT_IS_INSIDE, nat_types.NAT_IS_OUTSIDE} {
			out = append(out, &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, Flags: flag, SwIfIndex: i})
		}
	}
	return append(out, mapping(model.TCP, 80, 8080), mapping(model.UDP, 53, 5353))
}

func up(i interface_types.InterfaceIndex) api.Message {
	return &interfaces.SwInterfaceSetFlags{SwIfIndex: i, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}
}

func address(a string) ip_types.Address { return ip_types.NewAddress(netip.MustParseAddr(a).AsSlice()) }

func prefix(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: ip_types.NewAddress(p.Addr().AsSlice()), Len: uint8(p.Bits())}
}

func neighbor(i interface_types.InterfaceIndex, a string, mac [6]byte) api.Message {
	return &ip_neighbor.IPNeighborAddDel{IsAdd: true, Neighbor: ip_neighbor.IPNeighbor{
		SwIfIndex: i, Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC, MacAddress: mac, IPAddress: address(a),
	}}
}

func step(via string, i interface_types.InterfaceIndex) fib_types.FibPath {
	p := fib_types.FibPath{SwIfIndex: uint32(i), Weight: 1}
	a := address(via)
	if p.Nh.Address = a.Un; a.Af == ip_types.ADDRESS_IP6 {
		p.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
	}
	return p
}

func route(to, via string, i interface_types.InterfaceIndex) api.Message {
	return &ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{Prefix: prefix(netip.MustParsePrefix(to)), NPaths: 1, Paths: []fib_types.FibPath{step(via, i)}}}
}
