package route

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/calc/table"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// route is a network as the data plane gets it.
type route struct {
	types            felix.RouteType
	pool             felix.IPPoolType
	node             string
	nodeIP           netip.Addr
	sameSubnet, nat  bool
	local, borrowed  bool
	ipip, vxlan, wgd bool
}

// Routes records for every network to which pool, block, node, workload or tunnel it belongs.
type Routes struct {
	self    string
	trie    trie
	hosts   map[string]hostAddrs
	pools   map[string]model.Pool
	blocks  map[cidr.CIDR][]blockRoute
	wanted  *table.Table[cidr.CIDR, route]
	dirty   map[cidr.CIDR]struct{}
	byNode  map[string]map[cidr.CIDR]struct{} // routes by the node they lead to
	nodeOf  map[cidr.CIDR]string
	wepNets map[model.WorkloadID][]cidr.CIDR
}

type blockRoute struct {
	dst  cidr.CIDR
	node string
}

// hostAddrs holds the addresses of a node that routing needs. It is comparable except for addrs.
type hostAddrs struct {
	v4, v6     netip.Addr
	net4, net6 netip.Prefix
	tunnels    [5]netip.Addr // IPIP, VXLAN, VXLAN v6, WireGuard, WireGuard v6
	addrs      []netip.Addr  // all addresses of the node itself, sorted
}

// New returns the routes of a node without objects.
func New(self string) *Routes {
	return &Routes{
		self: self, hosts: map[string]hostAddrs{}, pools: map[string]model.Pool{}, blocks: map[cidr.CIDR][]blockRoute{},
		wanted: table.New[cidr.CIDR](table.Same[route]), dirty: map[cidr.CIDR]struct{}{},
		byNode: map[string]map[cidr.CIDR]struct{}{}, nodeOf: map[cidr.CIDR]string{}, wepNets: map[model.WorkloadID][]cidr.CIDR{},
	}
}

// edit changes the information about a network.
func (x *Routes) edit(p cidr.CIDR, change func(*routeInfo)) {
	info := x.trie.infoAt(p)
	change(info)
	if info.unused() {
		x.trie.removeNetwork(p)
	}
	x.dirty[p] = struct{}{}
}

func (x *Routes) markDirty(p cidr.CIDR) { x.dirty[p] = struct{}{} }

// SetPool puts a pool, or removes it if nil.
func (x *Routes) SetPool(id string, pool *model.Pool) {
	if old, ok := x.pools[id]; ok {
		p := cidr.Of(old.CIDR)
		delete(x.pools, id)
		x.trie.below(p, x.markDirty)
		x.edit(p, func(i *routeInfo) {
			i.pools = slices.DeleteFunc(i.pools, func(c poolClaim) bool { return c.id == id })
		})
	}
	if pool == nil {
		return
	}
	x.pools[id] = *pool
	p := cidr.Of(pool.CIDR)
	claim := poolClaim{id, poolType(pool), pool.Masquerade, pool.IPIPMode == crossSubnet || pool.VXLANMode == crossSubnet}
	x.edit(p, func(i *routeInfo) {
		i.pools = append(i.pools, claim)
		slices.SortFunc(i.pools, func(a, b poolClaim) int { return strings.Compare(a.id, b.id) })
	})
	x.trie.below(p, x.markDirty)
}

const crossSubnet = "cross-subnet"

func poolType(p *model.Pool) felix.IPPoolType {
	switch {
	case p.VXLANMode != "":
		return felix.IPPoolType_VXLAN
	case p.IPIPMode != "":
		return felix.IPPoolType_IPIP
	}
	return felix.IPPoolType_NO_ENCAP
}

// SetBlock puts a block, or removes it if nil.
func (x *Routes) SetBlock(block netip.Prefix, b *model.Block) {
	key := cidr.Of(block)
	var now []blockRoute
	if b != nil {
		for _, a := range b.Borrowed {
			now = append(now, blockRoute{cidr.Host(a.Addr), a.Node})
		}
		if b.Node != "" {
			now = slices.DeleteFunc(now, func(r blockRoute) bool { return r.dst == key }) // a block of one address
			now = append(now, blockRoute{key, b.Node})
		}
	}
	old := x.blocks[key]
	if slices.Equal(old, now) {
		return
	}
	for _, r := range old {
		x.edit(r.dst, func(i *routeInfo) { i.blocks = removeFirst(i.blocks, blockClaim{key, r.node}) })
	}
	for _, r := range now {
		x.edit(r.dst, func(i *routeInfo) {
			i.blocks = append(i.blocks, blockClaim{key, r.node})
			slices.SortFunc(i.blocks, compareClaims)
		})
	}
	x.trie.below(key, x.markDirty)
	if now == nil {
		delete(x.blocks, key)
	} else {
		x.blocks[key] = now
	}
}

func compareClaims(a, b blockClaim) int {
	return cmp.Or(a.block.Compare(b.block), strings.Compare(a.node, b.node))
}

func removeFirst[T comparable](list []T, v T) []T {
	if i := slices.Index(list, v); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// SetWorkload sets the addresses of a workload; none removes it.
func (x *Routes) SetWorkload(id model.WorkloadID, nets []netip.Prefix) {
	old := x.wepNets[id]
	now := make([]cidr.CIDR, 0, len(nets))
	for _, n := range nets {
		if n.IsValid() {
			now = append(now, cidr.Of(n))
		}
	}
	if slices.Equal(old, now) {
		return
	}
	for _, p := range now {
		x.countUse(p, id.Node, refWorkload, 1)
	}
	for _, p := range old {
		x.countUse(p, id.Node, refWorkload, -1)
	}
	if len(now) > 0 {
		x.wepNets[id] = now
	} else {
		delete(x.wepNets, id)
	}
}

// countUse adds by to the number of uses of a network by a node.
func (x *Routes) countUse(p cidr.CIDR, node string, kind refKind, by int) {
	x.edit(p, func(info *routeInfo) {
		i := slices.IndexFunc(info.refs, func(r routeRef) bool { return r.node == node && r.kind == kind })
		if i < 0 {
			info.refs = append(info.refs, routeRef{node, kind, by})
			slices.SortFunc(info.refs, func(a, b routeRef) int {
				return cmp.Or(strings.Compare(a.node, b.node), cmp.Compare(a.kind, b.kind))
			})
			return
		}
		if info.refs[i].count += by; info.refs[i].count == 0 {
			info.refs = slices.Delete(info.refs, i, i+1)
		}
	})
}

// Held counts what the routes hold, by part.
func (x *Routes) Held() map[string]int {
	out := map[string]int{
		"hosts": len(x.hosts), "pools": len(x.pools), "blocks": len(x.blocks), "wanted": x.wanted.Held(), "dirty": len(x.dirty),
		"byNode": len(x.byNode), "nodeOf": len(x.nodeOf), "wepNets": len(x.wepNets),
	}
	if x.trie.v4 != nil || x.trie.v6 != nil {
		out["trie"] = 1
	}
	return out
}
