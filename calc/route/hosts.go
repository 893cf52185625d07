package route

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// addrsOf returns the addresses of a node that routing needs; ok is false while the node has no main address.
func addrsOf(h *model.Host) (a hostAddrs, ok bool) {
	if h == nil || !h.IPv4.IsValid() && !h.IPv6.IsValid() {
		return a, false
	}
	a = hostAddrs{
		v4: h.IPv4, v6: h.IPv6, net4: subnet(h.Net4, h.IPv4), net6: subnet(h.Net6, h.IPv6),
		tunnels: [5]netip.Addr{h.IPIP, h.VXLAN4, h.VXLAN6, h.Wireguard4, h.Wireguard6},
	}
	for _, addr := range append([]netip.Addr{h.IPv4, h.IPv6}, h.Addrs...) {
		if addr.IsValid() && !addr.IsUnspecified() {
			a.addrs = append(a.addrs, addr)
		}
	}
	slices.SortFunc(a.addrs, netip.Addr.Compare)
	a.addrs = slices.Compact(a.addrs)
	return a, true
}

// subnet is the node's network, or its address alone if the mask is unknown.
func subnet(net netip.Prefix, addr netip.Addr) netip.Prefix {
	switch {
	case net.IsValid():
		return net.Masked()
	case addr.IsValid():
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	return netip.Prefix{}
}

func (a hostAddrs) equal(b hostAddrs) bool {
	return a.v4 == b.v4 && a.v6 == b.v6 && a.net4 == b.net4 && a.net6 == b.net6 && a.tunnels == b.tunnels &&
		slices.Equal(a.addrs, b.addrs)
}

func tunnelKinds() [5]refKind {
	return [5]refKind{refIPIP, refVXLAN, refVXLAN, refWireguard, refWireguard}
}

// SetHost puts a node, or removes it if it is nil or has no address.
func (x *Routes) SetHost(name string, h *model.Host) {
	now, known := addrsOf(h)
	old, was := x.hosts[name]
	if known == was && old.equal(now) {
		return
	}
	if name == x.self && (old.net4 != now.net4 || old.net6 != now.net6) {
		x.markSubnetsDirty(old, now)
	}
	kinds := tunnelKinds()
	for i, kind := range kinds {
		if now.tunnels[i].IsValid() {
			x.countUse(cidr.Host(now.tunnels[i]), name, kind, 1)
		}
		if old.tunnels[i].IsValid() {
			x.countUse(cidr.Host(old.tunnels[i]), name, kind, -1)
		}
	}
	for _, a := range now.addrs {
		x.edit(cidr.Host(a), func(i *routeInfo) {
			i.hosts = append(i.hosts, name)
			slices.Sort(i.hosts)
		})
	}
	for _, a := range old.addrs {
		x.edit(cidr.Host(a), func(i *routeInfo) { i.hosts = removeFirst(i.hosts, name) })
	}
	delete(x.hosts, name)
	if known {
		x.hosts[name] = now
	}
	for p := range x.byNode[name] {
		x.markDirty(p)
	}
}

// markSubnetsDirty marks the routes to nodes that entered or left this node's subnet. It runs only when this node's own
// subnet changes, and walks the nodes, not the routes.
func (x *Routes) markSubnetsDirty(old, now hostAddrs) {
	for name, h := range x.hosts {
		if inNetwork(old.net4, h.v4) != inNetwork(now.net4, h.v4) || inNetwork(old.net6, h.v6) != inNetwork(now.net6, h.v6) {
			for p := range x.byNode[name] {
				x.markDirty(p)
			}
		}
	}
}

func inNetwork(net netip.Prefix, a netip.Addr) bool { return net.IsValid() && net.Contains(a) }

// resolve computes the route of a network from all networks that contain it; ok is false if nothing is known of the
// network itself.
func (x *Routes) resolve(p cidr.CIDR) (r route, ok bool) {
	crosses, blockNode := false, ""
	x.trie.path(p, func(at cidr.CIDR, i *routeInfo) {
		ok = at == p
		if len(i.pools) > 0 {
			r.pool = i.pools[0].kind
			r.nat = r.nat || i.pools[0].nat
			crosses = crosses || i.pools[0].crossesNet
		}
		if len(i.blocks) > 0 {
			r.node = i.blocks[0].node
			r.types |= x.pick(r.node, felix.RouteType_LOCAL_WORKLOAD, felix.RouteType_REMOTE_WORKLOAD)
			if blockNode == "" {
				blockNode = r.node
			}
			r.borrowed = r.borrowed || blockNode != r.node
		}
		if len(i.hosts) > 0 {
			r.node = i.hosts[0]
			r.types |= x.pick(r.node, felix.RouteType_LOCAL_HOST, felix.RouteType_REMOTE_HOST)
		}
		if x.addRefs(&r, i.refs) {
			r.borrowed = r.borrowed || blockNode != "" && blockNode != r.node
		}
	})
	h, known := x.hosts[r.node]
	if r.node != "" && known {
		self := x.hosts[x.self]
		addr, net := h.v4, self.net4
		if p.V6 {
			addr, net = h.v6, self.net6
		}
		r.nodeIP, r.sameSubnet = addr, crosses && addr.IsValid() && inNetwork(net, addr)
	}
	return r, ok
}

// addRefs adds the workloads and tunnels that use the network itself; it reports false if there are none.
func (x *Routes) addRefs(r *route, refs []routeRef) bool {
	if len(refs) == 0 {
		return false
	}
	r.node = refs[0].node
	if refs[0].kind == refWorkload {
		r.types |= x.pick(r.node, felix.RouteType_LOCAL_WORKLOAD, felix.RouteType_REMOTE_WORKLOAD)
		r.local = r.local || r.node == x.self
		return true
	}
	r.types |= x.pick(r.node, felix.RouteType_LOCAL_TUNNEL, felix.RouteType_REMOTE_TUNNEL)
	for _, ref := range refs {
		if ref.node == r.node {
			r.ipip = r.ipip || ref.kind == refIPIP
			r.vxlan = r.vxlan || ref.kind == refVXLAN
			r.wgd = r.wgd || ref.kind == refWireguard
		}
	}
	return true
}

func (x *Routes) pick(node string, local, remote felix.RouteType) felix.RouteType {
	if node == x.self {
		return local
	}
	return remote
}

// FlushRoutes resolves what changed.
func (x *Routes) FlushRoutes() (updates, removes []*felix.ToDataplane) {
	for p := range x.dirty {
		r, ok := x.resolve(p)
		if p.Host() == p && p.Addr().IsUnspecified() {
			ok = false // no route leads to the unspecified address
		}
		if ok {
			x.wanted.Set(p, r)
			x.fileUnderNode(p, r.node)
		} else {
			x.wanted.Remove(p)
			x.fileUnderNode(p, "")
		}
	}
	clear(x.dirty)
	return x.wanted.Flush(cidr.CIDR.Compare, routeUpdate, routeRemove)
}

// fileUnderNode files a route under the node it leads to.
func (x *Routes) fileUnderNode(p cidr.CIDR, node string) {
	if old := x.nodeOf[p]; old != node {
		if delete(x.byNode[old], p); len(x.byNode[old]) == 0 {
			delete(x.byNode, old)
		}
	}
	if node == "" {
		delete(x.nodeOf, p)
		return
	}
	x.nodeOf[p] = node
	if x.byNode[node] == nil {
		x.byNode[node] = map[cidr.CIDR]struct{}{}
	}
	x.byNode[node][p] = struct{}{}
}

func routeUpdate(p cidr.CIDR, r route) *felix.ToDataplane {
	u := &felix.RouteUpdate{
		Types: r.types, IpPoolType: r.pool, Dst: p.Prefix().String(), DstNodeName: r.node,
		SameSubnet: r.sameSubnet, NatOutgoing: r.nat, LocalWorkload: r.local, Borrowed: r.borrowed,
	}
	if r.nodeIP.IsValid() {
		u.DstNodeIp = r.nodeIP.String()
	}
	if r.ipip || r.vxlan || r.wgd {
		u.TunnelType = &felix.TunnelType{Ipip: r.ipip, Vxlan: r.vxlan, Wireguard: r.wgd}
	}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_RouteUpdate{RouteUpdate: u}}
}

func routeRemove(p cidr.CIDR) *felix.ToDataplane {
	r := &felix.RouteRemove{Dst: p.Prefix().String()}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_RouteRemove{RouteRemove: r}}
}
