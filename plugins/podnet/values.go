package podnet

import (
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	linuxinterfaces "github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	linuxl3 "github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/namespace"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
)

// cluster is the input of the values beside the attachments.
type cluster struct {
	nodes    map[string]*model.Node
	services map[string][]netip.Prefix // by name of the ServiceCIDR object
}

// own returns this node's object; nil: it does not exist.
func (c *cluster) ownNode(s *Settings) *model.Node { return c.nodes[s.NodeName] }

// values returns what a node with these attachments has in VPP and in its kernel.
func (c *cluster) values(s *Settings, pods []*Attachment) kv.Values {
	b := &builder{s: s, out: kv.Values{}}
	own := c.ownNode(s)
	if own == nil {
		own = &model.Node{Name: s.NodeName}
	}
	b.mtu = s.PodMTU(c.over6(s))
	b.gateway()
	others := distinct(own, c.others(s))
	b.hostLink(own, detours(own, others))
	if s.Direct.On() {
		b.direct(own, others)
	} else {
		b.overlay(own, others)
	}
	b.serviceRoutes(c.serviceCIDRs(s))
	for _, p := range pods {
		b.pod(p)
	}
	return b.out
}

// podValues returns what one attachment has.
func (c *cluster) podValues(s *Settings, p *Attachment) kv.Values {
	b := &builder{s: s, out: kv.Values{}}
	b.pod(p)
	return b.out
}

// others are the other nodes, by name.
func (c *cluster) others(s *Settings) (out []*model.Node) {
	for name, n := range c.nodes {
		if name != s.NodeName {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *model.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// over6 reports that packets between nodes may have to cross IPv6: this node or another has no IPv4 address.
func (c *cluster) over6(s *Settings) bool {
	for _, n := range c.nodes {
		if !internal(n, false).IsValid() && internal(n, true).IsValid() {
			return true
		}
	}
	return false
}

func (c *cluster) serviceCIDRs(s *Settings) []netip.Prefix {
	out := slices.Clone(s.ServiceCIDRs)
	for _, list := range c.services {
		out = append(out, list...)
	}
	for i := range out {
		out[i] = out[i].Masked()
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// internal is the first internal address of a node in a family; zero: none.
func internal(n *model.Node, v6 bool) netip.Addr {
	for _, a := range n.InternalIPs {
		if a.Is6() == v6 {
			return a
		}
	}
	return netip.Addr{}
}

// podCIDR is the first range of a node's pods in a family; zero: none.
func podCIDR(n *model.Node, v6 bool) netip.Prefix {
	for _, p := range n.PodCIDRs {
		if p.Addr().Is6() == v6 {
			return p.Masked()
		}
	}
	return netip.Prefix{}
}

// hostAddr is the address from which the node's own processes reach pods and Services: the first of its pods' range, which no pod gets. All
// nodes have a route to it, so answers of any host return to this VPP; no NAT uses it.
func hostAddr(n *model.Node, v6 bool) netip.Addr {
	if p := podCIDR(n, v6); p.IsValid() {
		return p.Addr().Next()
	}
	return netip.Addr{}
}

// builder collects values.
type builder struct {
	s   *Settings
	mtu int // of pods
	out kv.Values
}

func (b *builder) put(all ...proto.Message) {
	for _, m := range all {
		b.out.Put(m)
	}
}

func (b *builder) gateway() {
	b.put(&interfaces.Interface{
		Name: Gateway, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, IpAddresses: []string{single(gateway4), single(gateway6)},
	})
}

// wire connects VPP with a link of the kernel: a veth pair whose far end VPP reads.
func (b *builder) wire(name, peer string, near *linuxinterfaces.Interface, mtu int, change func(*interfaces.Interface)) {
	near.Type, near.Enabled, near.Mtu = linuxinterfaces.Interface_VETH, true, uint32(mtu)
	near.Link = &linuxinterfaces.Interface_Veth{Veth: &linuxinterfaces.VethLink{
		PeerIfName: peer, TxChecksumOffloading: linuxinterfaces.VethLink_CHKSM_OFFLOAD_DISABLED,
	}}
	far := &interfaces.Interface{
		Name: name, Type: interfaces.Interface_AF_PACKET, Enabled: true, PhysAddress: vppMAC, Mtu: uint32(mtu),
		Link: &interfaces.Interface_Afpacket{Afpacket: &interfaces.AfpacketLink{HostIfName: peer}},
	}
	change(far)
	b.put(near, far, &linuxinterfaces.Interface{
		Name: peer, HostIfName: peer, Type: linuxinterfaces.Interface_VETH, Enabled: true, PhysAddress: peerMAC, Mtu: uint32(mtu),
		Link: &linuxinterfaces.Interface_Veth{Veth: &linuxinterfaces.VethLink{PeerIfName: near.Name}},
	})
}

func unnumbered(i *interfaces.Interface) {
	i.Unnumbered = &interfaces.Interface_Unnumbered{InterfaceWithIp: Gateway}
}

// hostLink leads to the node's own network stack: to the node's addresses, and to all that is outside of the cluster.
func (b *builder) hostLink(own *model.Node, detours []*contivlinux.Handover_Detour) {
	near := &linuxinterfaces.Interface{Name: hostLink, HostIfName: hostLink, PhysAddress: hostMAC}
	handover := &contivlinux.Handover{Interface: hostLink, Refuse: b.s.refuse(), VppLinks: []string{vppLinks}, VppDevices: b.s.Direct.devices(), Detours: detours}
	for _, v6 := range []bool{false, true} {
		a := hostAddr(own, v6)
		if !a.IsValid() {
			continue
		}
		near.IpAddresses = append(near.IpAddresses, single(a))
		b.put(
			&l3.ARPEntry{Interface: Host, IpAddress: a.String(), PhysAddress: hostMAC, Static: true},
			&l3.Route{DstNetwork: single(a), OutgoingInterface: Host, NextHopAddr: a.String()},
			&l3.Route{DstNetwork: everything(v6), OutgoingInterface: Host, NextHopAddr: a.String()},
		)
		for _, node := range own.Addrs() {
			if node.Is6() == v6 {
				b.put(&l3.Route{DstNetwork: single(node), OutgoingInterface: Host, NextHopAddr: a.String()})
			}
		}
		b.leadToVPP(hostLink, gatewayOf(a))
		for _, p := range own.PodCIDRs {
			if p.Addr().Is6() == v6 {
				b.hostRoute(p)
				handover.Masquerade = append(handover.Masquerade, p.Masked().String())
			}
		}
		handover.Masquerade = append(handover.Masquerade, single(returnOf(v6)))
	}
	b.wire(Host, hostPeer, near, b.mtu, unnumbered)
	for _, v6 := range []bool{false, true} {
		if a := internal(own, v6); a.IsValid() && !b.s.Direct.On() {
			vpp := tunnelVPP4
			if v6 {
				vpp = tunnelVPP6
			}
			handover.Tunnels = append(handover.Tunnels, &contivlinux.Handover_Tunnel{NodeAddress: a.String(), VppAddress: vpp.Addr().String(), Port: vxlanPort})
		}
	}
	b.put(handover)
}

func everything(v6 bool) string {
	if v6 {
		return "::/0"
	}
	return "0.0.0.0/0"
}

// leadToVPP makes the router behind a link of the kernel known there: it never has to be asked.
func (b *builder) leadToVPP(link string, router netip.Addr) {
	b.put(
		&linuxl3.Route{OutgoingInterface: link, DstNetwork: single(router), Scope: linuxl3.Route_LINK},
		&linuxl3.ARPEntry{Interface: link, IpAddress: router.String(), HwAddress: vppMAC},
	)
}

// hostRoute is a route of the node's own network stack to VPP. The kernel takes the link's only address as the source.
func (b *builder) hostRoute(p netip.Prefix) {
	b.put(&linuxl3.Route{OutgoingInterface: hostLink, DstNetwork: p.Masked().String(), GwAddr: gatewayOf(p.Addr()).String()})
}

// serviceRoutes lead the node's own processes to Services. A family in which the node has no pods has none.
func (b *builder) serviceRoutes(cidrs []netip.Prefix) {
	for _, p := range cidrs {
		if _, ok := b.out[kv.Key(&linuxl3.ARPEntry{Interface: hostLink, IpAddress: gatewayOf(p.Addr()).String()})]; ok {
			b.hostRoute(p)
		}
	}
}

// overlay is the bridge domain of the tunnels, and the routes to the other nodes.
func (b *builder) overlay(own *model.Node, others []*model.Node) {
	b.underlay()
	b.put(&interfaces.Interface{
		Name: Overlay, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, PhysAddress: overlayMAC(own.Name), Mtu: uint32(b.mtu),
		Unnumbered: &interfaces.Interface_Unnumbered{InterfaceWithIp: Gateway},
	})
	domain := &l2.BridgeDomain{Name: Overlay, Forward: true, Interfaces: []*l2.BridgeDomain_Interface{{Name: Overlay, BridgedVirtualInterface: true}}}
	for _, n := range others {
		if name := b.tunnel(own, n); name != "" {
			domain.Interfaces = append(domain.Interfaces, &l2.BridgeDomain_Interface{Name: name, SplitHorizonGroup: 1})
			b.behindTunnel(n)
		}
	}
	b.put(domain)
}

// underlay carries the outer packets of tunnels, in a separate table: inside, the other nodes' addresses are behind the tunnels.
func (b *builder) underlay() {
	near := &linuxinterfaces.Interface{Name: vxlanLink, HostIfName: vxlanLink, PhysAddress: hostMAC, IpAddresses: []string{tunnelHost4.String(), tunnelHost6.String()}}
	b.wire(underlay, vxlanPeer, near, b.s.linkMTU(), func(i *interfaces.Interface) {
		i.Vrf, i.IpAddresses = vni, []string{tunnelVPP4.String(), tunnelVPP6.String()}
	})
	for _, f := range []struct {
		family    l3.VrfTable_Protocol
		host, vpp netip.Addr
	}{{l3.VrfTable_IPV4, tunnelHost4.Addr(), tunnelVPP4.Addr()}, {l3.VrfTable_IPV6, tunnelHost6.Addr(), tunnelVPP6.Addr()}} {
		b.put(
			&l3.VrfTable{Id: vni, Protocol: f.family, Label: underlay},
			&l3.ARPEntry{Interface: underlay, IpAddress: f.host.String(), PhysAddress: hostMAC, Static: true},
			&l3.Route{VrfId: vni, DstNetwork: everything(f.host.Is6()), OutgoingInterface: underlay, NextHopAddr: f.host.String()},
			&linuxl3.ARPEntry{Interface: vxlanLink, IpAddress: f.vpp.String(), HwAddress: vppMAC},
		)
	}
}

// tunnel leads to another node, over IPv4 if both nodes have an address in it. It returns the interface's name; "": no family is common.
func (b *builder) tunnel(own, other *model.Node) string {
	for _, v6 := range []bool{false, true} {
		from, to := internal(own, v6), internal(other, v6)
		if !from.IsValid() || !to.IsValid() || from == to {
			continue
		}
		vpp := tunnelVPP4
		if v6 {
			vpp = tunnelVPP6
		}
		name := "vxlan:" + to.String()
		b.put(
			&interfaces.Interface{
				Name: name, Type: interfaces.Interface_VXLAN_TUNNEL, Enabled: true, Vrf: vni,
				Link: &interfaces.Interface_Vxlan{Vxlan: &interfaces.VxlanLink{SrcAddress: vpp.Addr().String(), DstAddress: to.String(), Vni: vni}},
			},
			&l2.FIBEntry{PhysAddress: overlayMAC(other.Name), BridgeDomain: Overlay, OutgoingInterface: name, StaticConfig: true},
		)
		return name
	}
	return ""
}

// behindTunnel are the routes to another node by its tunnel. The next hop is the range's first address, which is unique without any allocation;
// its neighbour entry is the node's overlay interface.
func (b *builder) behindTunnel(n *model.Node) {
	b.behind(n, Overlay, func(v6 bool) netip.Addr {
		p := podCIDR(n, v6)
		if p.IsValid() {
			b.put(&l3.ARPEntry{Interface: Overlay, IpAddress: p.Addr().String(), PhysAddress: overlayMAC(n.Name), Static: true})
		}
		return p.Addr()
	})
}

// behind are the routes to another node: to its pods, and to its addresses, from which its own processes send.
func (b *builder) behind(n *model.Node, by string, hopOf func(v6 bool) netip.Addr) {
	for _, v6 := range []bool{false, true} {
		hop := hopOf(v6)
		if !hop.IsValid() {
			continue
		}
		for _, p := range n.PodCIDRs {
			if p.Addr().Is6() == v6 {
				b.put(&l3.Route{DstNetwork: p.Masked().String(), OutgoingInterface: by, NextHopAddr: hop.String()})
				b.hostRoute(p)
			}
		}
		for _, a := range n.Addrs() {
			if a.Is6() == v6 {
				b.put(&l3.Route{DstNetwork: single(a), OutgoingInterface: by, NextHopAddr: hop.String()})
			}
		}
	}
}

// pod connects a pod.
func (b *builder) pod(p *Attachment) {
	name := p.iface()
	for _, a := range p.Addresses {
		b.put(
			&l3.Route{DstNetwork: single(a), OutgoingInterface: name, NextHopAddr: a.String()},
			&l3.ARPEntry{Interface: name, IpAddress: a.String(), PhysAddress: podMAC(p.Attachment), Static: true},
		)
	}
	switch {
	case p.Memif != "":
		b.memif(name, p)
	case p.Tap:
		b.tap(name, p)
	default:
		b.veth(name, p)
	}
	b.hostPorts(p)
	b.limits(p)
}

// veth connects a pod's namespace by a veth.
func (b *builder) veth(name string, p *Attachment) {
	b.wire(name, p.peer(), b.inPod(p), p.MTU, unnumbered)
}

// inPod is the interface in a pod's namespace, of a kind yet to be named, with its routes and neighbours.
func (b *builder) inPod(p *Attachment) *linuxinterfaces.Interface {
	inside := p.peer() + "-pod"
	near := &linuxinterfaces.Interface{
		Name: inside, HostIfName: p.IfName, PhysAddress: podMAC(p.Attachment),
		Namespace: &namespace.NetNamespace{Type: namespace.NetNamespace_FD, Reference: p.Netns},
	}
	for _, a := range p.Addresses {
		near.IpAddresses = append(near.IpAddresses, single(a))
		b.put(&linuxl3.Route{OutgoingInterface: inside, DstNetwork: everything(a.Is6()), GwAddr: gatewayOf(a).String()})
		b.leadToVPP(inside, gatewayOf(a))
	}
	return near
}
