package calc_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"testing"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// claim is a statement about a network. The widest network counts first, and then the rank at one width.
type claim struct {
	net  netip.Prefix
	rank int    // its kind, in the order in which claims on one network are evaluated
	tie  string // among claims of one rank the first counts
	says func(*felix.RouteUpdate)
	node string
}

// claims lists all statements about networks.
func (w *world) claims(cfg calc.Config) (out []claim) {
	kind := func(node string, local, remote felix.RouteType) func(*felix.RouteUpdate) {
		return func(r *felix.RouteUpdate) {
			if r.DstNodeName = node; node == self {
				r.Types |= local
			} else {
				r.Types |= remote
			}
		}
	}
	for id, p := range w.pools {
		out = append(out, claim{p.CIDR, 0, id, func(r *felix.RouteUpdate) {
			r.IpPoolType = felix.IPPoolType_NO_ENCAP
			if p.VXLANMode != "" {
				r.IpPoolType = felix.IPPoolType_VXLAN
			} else if p.IPIPMode != "" {
				r.IpPoolType = felix.IPPoolType_IPIP
			}
			r.NatOutgoing = r.NatOutgoing || p.Masquerade
			r.SameSubnet = r.SameSubnet || p.VXLANMode == "cross-subnet" || p.IPIPMode == "cross-subnet"
		}, ""})
	}
	for cidr, b := range w.blocks {
		if cfg.WorkloadRoutes {
			continue
		}
		for _, a := range b.Borrowed {
			if net := netip.PrefixFrom(a.Addr, a.Addr.BitLen()); net != cidr || b.Node == "" {
				out = append(out, claim{net, 1, cidr.String(), kind(a.Node, felix.RouteType_LOCAL_WORKLOAD, felix.RouteType_REMOTE_WORKLOAD), a.Node})
			}
		}
		if b.Node != "" {
			out = append(out, claim{cidr, 1, cidr.String(), kind(b.Node, felix.RouteType_LOCAL_WORKLOAD, felix.RouteType_REMOTE_WORKLOAD), b.Node})
		}
	}
	for name, h := range w.known(cfg) {
		for _, a := range []netip.Addr{h.IPv4, h.IPv6} {
			if a.IsValid() {
				out = append(out, claim{netip.PrefixFrom(a, a.BitLen()), 2, name, kind(name, felix.RouteType_LOCAL_HOST, felix.RouteType_REMOTE_HOST), name})
			}
		}
		for what, a := range map[string]netip.Addr{"3ipip": h.IPIP, "4vxlan": h.VXLAN4} {
			if a.IsValid() {
				out = append(out, claim{netip.PrefixFrom(a, 32), 3, name + " " + what, kind(name, felix.RouteType_LOCAL_TUNNEL, felix.RouteType_REMOTE_TUNNEL), name})
			}
		}
	}
	for id, e := range w.workloads {
		for _, n := range e.Nets {
			if id.Node == self || cfg.WorkloadRoutes {
				out = append(out, claim{n, 3, id.Node + " 1workload", kind(id.Node, felix.RouteType_LOCAL_WORKLOAD, felix.RouteType_REMOTE_WORKLOAD), id.Node})
			}
		}
	}
	return out
}

// known are the nodes for which routing has an address.
func (w *world) known(cfg calc.Config) map[string]*model.Host {
	out := map[string]*model.Host{}
	if cfg.NodeResources {
		for name, h := range w.hosts {
			if h.IPv4.IsValid() || h.IPv6.IsValid() {
				out[name] = h
			}
		}
		return out
	}
	for name, a := range w.hostIPs {
		out[name] = &model.Host{IPv4: *a, Net4: netip.PrefixFrom(*a, 32)}
	}
	return out
}

// routeDisagreements compares routes with a literal evaluation: all claims on networks that contain the destination,
// the widest first; a later claim overrides an earlier one.
func (w *world) routeDisagreements(m *mirror.Mirror, cfg calc.Config) []string {
	claims := w.claims(cfg)
	sort.Slice(claims, func(i, j int) bool {
		a, b := claims[i], claims[j]
		if a.net.Bits() != b.net.Bits() {
			return a.net.Bits() < b.net.Bits()
		}
		return a.rank < b.rank || a.rank == b.rank && a.tie < b.tie
	})
	want := map[string]string{}
	for _, c := range claims {
		dst := c.net
		if dst.IsSingleIP() && dst.Addr().IsUnspecified() {
			continue
		}
		r := &felix.RouteUpdate{Dst: dst.String()}
		seen := map[string]bool{}
		for _, o := range claims {
			if key := fmt.Sprint(o.net, o.rank); o.net.Overlaps(dst) && o.net.Bits() <= dst.Bits() && !seen[key] {
				seen[key] = true
				o.says(r)
			}
		}
		known := w.known(cfg)
		crosses := r.SameSubnet
		r.SameSubnet = false
		if h := known[r.DstNodeName]; h != nil {
			ip, net := h.IPv4, netip.Prefix{}
			if me := known[self]; me != nil {
				net = me.Net4
			}
			if dst.Addr().Is6() {
				ip, net = h.IPv6, netip.Prefix{}
				if me := known[self]; me != nil {
					net = me.Net6
				}
			}
			if ip.IsValid() {
				r.DstNodeIp = ip.String()
				r.SameSubnet = crosses && net.IsValid() && net.Contains(ip)
			}
		}
		want[r.Dst] = routeLine(r)
	}
	got := map[string]string{}
	for _, v := range m.Things {
		if r, ok := v.(*felix.RouteUpdate); ok {
			got[r.Dst] = routeLine(r)
		}
	}
	return compare("routes", slices.Sorted(maps.Values(want)), slices.Sorted(maps.Values(got)))
}

func routeLine(r *felix.RouteUpdate) string {
	return fmt.Sprint(r.Dst, " types ", int32(r.Types), " pool ", r.IpPoolType, " to ", r.DstNodeName, " ", r.DstNodeIp,
		" nat ", r.NatOutgoing, " same subnet ", r.SameSubnet)
}

// An address is borrowed if another node uses it than the one its block belongs to.
func TestBorrowedAddresses(t *testing.T) {
	block := netip.MustParsePrefix("10.0.0.0/29")
	for _, c := range []struct {
		name  string
		block *model.Block
		want  bool
	}{
		{"no block", nil, false},
		{"own block", &model.Block{CIDR: block, Node: self}, false},
		{"a block of no node", &model.Block{CIDR: block}, false},
		{"a block of another node", &model.Block{CIDR: block, Node: "n2"}, true},
		{"recorded in the block", &model.Block{
			CIDR: block, Node: "n2", Borrowed: []model.BorrowedAddr{{Addr: netip.MustParseAddr("10.0.0.1"), Node: self}},
		}, true},
	} {
		g := calc.New(calc.Config{Node: self})
		id := model.WorkloadID{Node: self, Workload: "w"}
		g.SetWorkload(id, &model.WorkloadEndpoint{ID: id, Nets: prefixList("10.0.0.1/32")})
		g.SetBlock(block, c.block)
		g.InSync()
		m := mirror.New()
		m.Apply(g.Flush(), true)
		r, _ := m.Things["Route 10.0.0.1/32"].(*felix.RouteUpdate)
		if r == nil || r.Borrowed != c.want || !r.LocalWorkload {
			t.Errorf("%s: %v, want borrowed %v and a local workload", c.name, r, c.want)
		}
	}
}
