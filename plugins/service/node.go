package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// refreshNodes recomputes everything that depends on the Node and ServiceCIDR objects only.
func (p *Processor) refreshNodes() {
	p.nodesDirty = false
	p.stateDirty = true
	wasRemote, wasSelf := p.remote, p.self.Addrs()
	var addrs []netip.Addr
	p.remoteNodes = nil
	for name, node := range p.nodes {
		addrs = append(addrs, node.Addrs()...)
		if name != p.cfg.NodeName {
			p.remoteNodes = append(p.remoteNodes, renderer.RemoteNode{Name: name, IPs: node.Addrs(), PodCIDRs: node.PodCIDRs})
		}
	}
	slices.SortFunc(p.remoteNodes, func(a, b renderer.RemoteNode) int { return cmp.Compare(a.Name, b.Name) })
	p.remote = renderer.NodeState{Remote: p.remoteNodes}.RemotePodCIDRs()
	zone := p.self.Zone
	p.self = model.Node{Name: p.cfg.NodeName}
	if node := p.nodes[p.cfg.NodeName]; node != nil {
		p.self = *node
	}
	ips := renderer.IPAddressesOf(addrs...)
	for _, ip := range difference(p.claims.nodes, ips) {
		for _, slice := range p.users.slicesOf(ip) { // a changed slice has already marked its services
			p.mark(p.serviceOf(slice.now.Service))
		}
	}
	ports := p.placeNodePorts(addrs)
	if !ips.Equal(p.claims.nodes) || !ports.Equal(p.claims.ports) {
		p.claims.setNodes(ips, ports, p.mark)
	}
	p.refreshRanges()
	if zone != p.self.Zone {
		for _, s := range p.services {
			p.mark(s)
		}
	}
	p.pods.changed = p.pods.changed || !slices.Equal(wasRemote, p.remote) || !slices.Equal(wasSelf, p.self.Addrs())
}

// refreshState recomputes the node's state and the interface sets, which depend on the objects only.
func (p *Processor) refreshState() {
	p.nodeNotes = nil
	p.version++
	remark := func(refused bool, format string, args ...any) {
		p.nodeNotes = append(p.nodeNotes, model.Note{
			Ref: model.Ref{Kind: model.KindNode, Name: p.cfg.NodeName}, Reason: fmt.Sprintf(format, args...), Refused: refused,
		})
	}
	if p.nodes[p.cfg.NodeName] == nil {
		remark(true, "there is no such Node: its addresses and pod CIDRs are not known")
	}
	p.portlessNode(remark)
	p.state = renderer.NodeState{
		Name:         p.cfg.NodeName,
		IPs:          p.self.Addrs(),
		PodCIDRs:     p.self.PodCIDRs,
		ServiceCIDRs: p.owners.services,
		Loopback:     p.loopback(remark),

		Remote:      p.remoteNodes,
		NoNodePorts: p.noPorts,
		Refusal:     p.cfg.Refusal,
	}
	p.placeInterfaces(remark)
}

// loopback returns the highest free usable address of the node's first IPv4 pod CIDR, or the configured one.
func (p *Processor) loopback(remark func(bool, string, ...any)) netip.Addr {
	if fixed := p.cfg.Loopback; fixed.IsValid() {
		if by := p.occupant(fixed); by != "" {
			remark(false, "NAT loopback %s is configured, but it is the address of %s", fixed, by)
		}
		return fixed
	}
	at := slices.IndexFunc(p.self.PodCIDRs, func(c netip.Prefix) bool { return c.Addr().Is4() })
	if at < 0 {
		return netip.Addr{}
	}
	cidr := p.self.PodCIDRs[at].Masked()
	wanted := lastAddr(cidr).Prev() // the last address is for broadcast
	for a := wanted; cidr.Bits() < 31 && a != cidr.Addr(); a = a.Prev() {
		if p.occupant(a) != "" {
			continue
		}
		if a != wanted {
			remark(false, "NAT loopback is %s, because %s is the address of %s", a, wanted, p.occupant(wanted))
		}
		return a
	}
	remark(true, "there is no NAT loopback: pod CIDR %s has no free address", cidr)
	return netip.Addr{}
}

// PodAt returns the pod of this node that has an address; of several the first by name.
func (p *Processor) PodAt(a netip.Addr) (id model.PodID, ok bool) {
	owners := p.pods.at[a]
	if len(owners) == 0 {
		return id, false
	}
	return slices.MinFunc(owners, model.PodID.Compare), true
}

// occupant names the object that has an address; "": no known object.
func (p *Processor) occupant(a netip.Addr) string {
	if pod, ok := p.PodAt(a); ok {
		return "Pod " + pod.String()
	}
	if users := p.users.slicesOf(a); len(users) > 0 {
		service := users[0].now.Service
		for _, slice := range users {
			if s := slice.now.Service; s.Compare(service) < 0 {
				service = s
			}
		}
		return "an endpoint of Service " + service.String()
	}
	if p.claims.nodes.Contains(a) {
		return "a node"
	}
	return ""
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(b)
}

func sortPrefixes(list []netip.Prefix) { slices.SortFunc(list, netip.Prefix.Compare) }

func equalStates(a, b renderer.NodeState) bool {
	return a.Name == b.Name && slices.Equal(a.IPs, b.IPs) && slices.Equal(a.PodCIDRs, b.PodCIDRs) &&
		slices.Equal(a.ServiceCIDRs, b.ServiceCIDRs) && a.Uplink == b.Uplink && a.ByHost == b.ByHost && slices.Equal(a.UplinkIPs, b.UplinkIPs) &&
		a.Overlay == b.Overlay && a.Host == b.Host && slices.Equal(a.HostIPs, b.HostIPs) && a.Loopback == b.Loopback && slices.EqualFunc(a.Remote, b.Remote, renderer.RemoteNode.Equal) &&
		slices.Equal(a.NoNodePorts, b.NoNodePorts) && a.Refusal == b.Refusal
}
