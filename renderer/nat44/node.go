package nat44

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/adapter"
)

// Node returns the values that do not depend on Services: NAT44 itself, its interfaces and address pools, and routes that drop
// packets for unallocated cluster IPs and for pads.
//
// Roles of interfaces, measured on VPP 24.06 (nat44_interface_add_del_feature, nat44_ed_add_del_output_interface): all are inside
// and outside at once (rule B12). With SNAT the uplink has the output feature instead, which covers both directions; the two
// exclude each other.
func Node(node renderer.NodeState, frontends, backends renderer.Interfaces, cfg Config) (kv.Values, []model.Note) {
	values := kv.Values{}
	values.Put(&nat.Nat44Global{Forwarding: true}) // rule B13: without it everything but services is dropped
	values.Put(&contivnat.Nat44Settings{
		Sessions:       cmp.Or(cfg.Sessions, DefaultSessions),
		Udp:            cmp.Or(cfg.TimeoutUDP, DefaultTimeoutUDP),
		TcpEstablished: cmp.Or(cfg.TimeoutTCPEstablished, DefaultTimeoutTCPEstablished),
		TcpTransitory:  cmp.Or(cfg.TimeoutTCPTransitory, DefaultTimeoutTCPTransitory),
		Icmp:           cmp.Or(cfg.TimeoutICMP, DefaultTimeoutICMP),
		KeepSize:       true,
	})
	for _, cidr := range node.ServiceCIDRs {
		if cidr.Addr().Is4() {
			values.Put(&contivl3.RejectRoute{DstNetwork: cidr.Masked().String(), Action: contivl3.RejectRoute_DROP})
		}
	}
	values.Put(&contivl3.RejectRoute{DstNetwork: PadNetwork, Action: contivl3.RejectRoute_DROP})
	if node.Loopback.Is4() {
		values.Put(&nat.Nat44AddressPool{VrfId: anyVRF, FirstIp: node.Loopback.String(), TwiceNat: true})
	}
	address, notes := snat(node, cfg)
	if address.IsValid() {
		values.Put(&nat.Nat44AddressPool{VrfId: anyVRF, FirstIp: address.String()})
		values.Put(identities(address, cfg))
		dropOwnPods(values, node)
	}
	for _, ifs := range []renderer.Interfaces{frontends, backends} {
		for name := range ifs {
			if name == node.Uplink && address.IsValid() {
				values.Put(&nat.Nat44Interface{Name: name, OutputFeature: true})
				continue
			}
			values.Put(&nat.Nat44Interface{Name: name, NatInside: true, NatOutside: true})
		}
	}
	return values, notes
}

// dropOwnPods drops packets for a pod without a route. The NAT loopback is usually an address of the same range, and not a pod's: an answer
// from an endpoint outside the cluster to a client outside has the loopback as destination when the uplink receives it, and the client when
// the uplink sends it. So the loopback follows the default route, unless VPP has another route to it: a pod that has the address nevertheless.
func dropOwnPods(values kv.Values, node renderer.NodeState) {
	within := func(p netip.Prefix) bool { return p.Contains(node.Loopback) }
	if slices.ContainsFunc(adapter.DropOwnPods(values, node, netip.Addr.Is4), within) {
		values.Put(&l3.Route{DstNetwork: netip.PrefixFrom(node.Loopback, 32).String(), NextHopAddr: outside, Preference: 255})
	}
}

// snat returns the address that pods have outside the cluster; the zero address: they keep theirs, and the note has the reason.
// It needs an overlay apart from the uplink: the output feature has no exceptions, so traffic to pods of other nodes would be
// translated, too.
func snat(node renderer.NodeState, cfg Config) (netip.Addr, []model.Note) {
	off := func(why string) (netip.Addr, []model.Note) {
		return netip.Addr{}, []model.Note{{
			Ref:    model.Ref{Kind: model.KindNode, Name: node.Name},
			Reason: "pods keep their addresses outside the cluster: " + why,
		}}
	}
	switch {
	case cfg.DisableSNAT, node.ByHost: // there the node's network stack decides
		return netip.Addr{}, nil
	case node.Uplink == "":
		return off("VPP has no known uplink")
	case node.Overlay == "" || node.Overlay == node.Uplink:
		return off(fmt.Sprintf("pods of other nodes are behind the uplink %s as well, and nat44 cannot tell them from the rest", node.Uplink))
	}
	if a := uplinkAddr(node); a.IsValid() {
		return a, nil
	}
	return off(fmt.Sprintf("neither the uplink %s nor the node has an IPv4 address", node.Uplink))
}

// uplinkAddr returns the first IPv4 address of the node that its uplink has, else the uplink's first one that is not link-local.
// An uplink without any (unnumbered, in front of the node's network stack) stands for the node's first address.
func uplinkAddr(node renderer.NodeState) netip.Addr {
	has := func(a netip.Addr) bool {
		return slices.ContainsFunc(node.UplinkIPs, func(p netip.Prefix) bool { return p.Addr() == a })
	}
	for _, a := range node.IPs {
		if a.Is4() && has(a) {
			return a
		}
	}
	for _, p := range node.UplinkIPs {
		if a := p.Addr(); a.Is4() && !a.IsLinkLocalUnicast() {
			return a
		}
	}
	for _, a := range node.IPs {
		if a.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// identities exempts the overlay's packets from SNAT: answers to them have no session otherwise.
func identities(address netip.Addr, cfg Config) *nat.DNat44 {
	port := uint32(cfg.VXLANPort)
	if port == 0 {
		port = defaultVXLANPort
	}
	return &nat.DNat44{
		Label:      IdentitiesLabel,
		IdMappings: []*nat.DNat44_IdentityMapping{{IpAddress: address.String(), Port: port, Protocol: nat.DNat44_UDP}},
	}
}
