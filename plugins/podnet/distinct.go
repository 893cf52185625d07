package podnet

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// distinct returns the other nodes without the addresses and ranges that this node has, or one before them in the list: the Node object of a former
// machine may still have its addresses when a new machine has them, and two routes to one address would share its packets.
func distinct(own *model.Node, others []*model.Node) []*model.Node {
	addrs, ranges := own.Addrs(), slices.Clone(own.PodCIDRs)
	out := make([]*model.Node, len(others))
	for i, n := range others {
		without := func(list []addr) []addr {
			return slices.DeleteFunc(slices.Clone(list), func(a addr) bool { return slices.Contains(addrs, a) })
		}
		m := *n
		m.InternalIPs, m.ExternalIPs = without(n.InternalIPs), without(n.ExternalIPs)
		m.PodCIDRs = slices.DeleteFunc(slices.Clone(n.PodCIDRs), func(p addrRange) bool { return slices.ContainsFunc(ranges, p.Overlaps) })
		addrs, ranges, out[i] = append(addrs, m.Addrs()...), append(ranges, m.PodCIDRs...), &m
	}
	return out
}
