package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	linuxinterfaces "github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
)

// Direct is an interface of VPP to a link that all nodes share. The zero value: there is none, and tunnels lead to other nodes.
//
//	VPP of a node                         VPP of another node
//	…  uplink ── a link of all nodes ── uplink  …
//
// Its addresses, and those of the other nodes there, are in the annotation model.AnnotationUplink of Nodes. Routes to another node have its
// address on the link as next hop. VPP finds the neighbour by ARP or ND.
type Direct struct {
	Link string // a link of the kernel that VPP then reads (af_packet), and the kernel no more; "": VPP has Interface
	MAC  string // of Link
	// Interface is the name of an interface that VPP has, with its addresses, from its own configuration: DPDK, AF_XDP.
	Interface string
	// NIC: Link is the NIC that has the node's addresses. VPP bridges it with the link NICLink, which gets them (plugins/podnet/takeover).
	//
	//	NIC ── nic ── bridge ── nic-kernel ── contiv-nic, with the node's addresses
	//	                 └ uplink, with VPP's own addresses
	NIC bool
}

// On reports that there are no tunnels.
func (d *Direct) On() bool { return *d != Direct{} }

func (d *Direct) validate() error {
	switch {
	case !d.On():
		return nil
	case (d.Link == "") == (d.Interface == ""):
		return errors.New("uplink: either a link of the kernel or an interface of VPP")
	case d.NIC && d.Link == "":
		return errors.New("uplink: an interface of VPP is no NIC of the kernel")
	case d.Link != "" && d.MAC == "":
		return fmt.Errorf("uplink %s: it has no MAC address", d.Link)
	}
	return nil
}

// ToNodes is the name of VPP's interface to other nodes.
func (d *Direct) ToNodes() string {
	switch {
	case !d.On():
		return Overlay
	case d.Interface != "":
		return d.Interface
	}
	return Uplink
}

// devices are the links that the kernel gives away for good.
func (d *Direct) devices() (out []string) {
	if d.Link != "" && !d.NIC {
		out = append(out, d.Link)
	}
	return out
}

// onUplink returns the addresses of a node's uplink, with the length of the link's prefix.
func onUplink(n *model.Node) (out []addrRange, err error) {
	for text := range strings.SplitSeq(n.Uplink, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		p, failed := netip.ParsePrefix(text)
		if failed != nil || p.Addr().Is4In6() || p.IsSingleIP() {
			return nil, fmt.Errorf("annotation %s: %q is not an address with the length of its link's prefix, as 192.0.2.1/24", model.AnnotationUplink, text)
		}
		out = append(out, p)
	}
	return out, nil
}

// incomplete returns why this node does not reach other nodes; "": it does.
func (d *Direct) incomplete(own *model.Node) string {
	if !d.On() {
		return ""
	}
	all, err := onUplink(own)
	if err != nil {
		return fmt.Sprintf("Node %s: %v", own.Name, err)
	}
	for _, p := range own.PodCIDRs {
		if !slices.ContainsFunc(all, func(u addrRange) bool { return u.Addr().Is6() == p.Addr().Is6() }) {
			return fmt.Sprintf("Node %s: annotation %s has no address of the family of pod CIDR %s", own.Name, model.AnnotationUplink, p)
		}
	}
	return ""
}

// direct are the uplink and the routes to the other nodes. A node whose annotation has no address on this node's link gets none.
func (b *builder) direct(own *model.Node, others []*model.Node) {
	here, _ := onUplink(own) // Status returns the error
	if d := &b.s.Direct; d.Link != "" {
		uplink := b.deviceOf(Uplink)
		if d.NIC {
			uplink = &interfaces.Interface{Name: Uplink, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, PhysAddress: uplinkMAC(own.Name), Mtu: uint32(b.mtu)}
			b.bridgeNIC()
		}
		for _, p := range here {
			uplink.IpAddresses = append(uplink.IpAddresses, p.String())
		}
		b.put(uplink)
	}
	for _, n := range others {
		there, _ := onUplink(n) // of a Node that cannot be reached
		b.behind(n, b.s.Direct.ToNodes(), func(v6 bool) netip.Addr { return sharedLink(here, there, v6) })
	}
}

// deviceOf is an interface on the kernel's link.
func (b *builder) deviceOf(name string) *interfaces.Interface {
	return &interfaces.Interface{
		Name: name, Type: interfaces.Interface_AF_PACKET, Enabled: true, PhysAddress: b.s.Direct.MAC, Mtu: uint32(b.mtu),
		Link: &interfaces.Interface_Afpacket{Afpacket: &interfaces.AfpacketLink{HostIfName: b.s.Direct.Link}},
	}
}

// bridgeNIC connects the NIC with the kernel's link that stands for it, frame by frame: ARP, discovery, DHCP and ICMP of the node stay the kernel's.
func (b *builder) bridgeNIC() {
	b.put(b.deviceOf(nicPort), &l2.BridgeDomain{
		Name: nicPort, Flood: true, UnknownUnicastFlood: true, Forward: true, Learn: true,
		Interfaces: []*l2.BridgeDomain_Interface{{Name: Uplink, BridgedVirtualInterface: true}, {Name: nicPort}, {Name: nicKernel}},
	})
	near := &linuxinterfaces.Interface{Name: NICLink, HostIfName: NICLink, PhysAddress: b.s.Direct.MAC, LinkOnly: true}
	b.wire(nicKernel, nicPeer, near, b.mtu, func(*interfaces.Interface) {})
}

// nicKeys are the keys of the values without which VPP does not carry the NIC's frames.
func nicKeys() []string {
	return []string{
		kv.InterfaceKey(nicPort), kv.InterfaceKey(nicKernel), kv.InterfaceKey(Uplink), kv.LinuxInterfaceKey(NICLink), kv.Key(&l2.BridgeDomain{Name: nicPort}),
	}
}

// sharedLink returns the first address that is on the same link as one of this node's; zero: none.
func sharedLink(here, there []addrRange, v6 bool) netip.Addr {
	for _, p := range there {
		if p.Addr().Is6() == v6 && slices.ContainsFunc(here, func(h addrRange) bool { return h.Masked().Contains(p.Addr()) && h.Addr() != p.Addr() }) {
			return p.Addr()
		}
	}
	return netip.Addr{}
}
