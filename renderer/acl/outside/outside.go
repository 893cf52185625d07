// Package outside finds the packets from outside a node that forge an address of the node (ADR 13).
//
// BUGS. A packet that a host forges in the overlay's tunnels passes if it is for another node's pod. That host can send it to the other node as well.
package outside

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Sources returns the sources that no host outside the node has: its pods, its NAT and, if it has a separate host link, the addresses of its
// processes; sorted. Nil: none is known.
func Sources(n *dataplane.Node, processes []netip.Addr) []netip.Prefix {
	out := slices.Clone(n.Own)
	list := slices.Clone(n.Hairpin)
	if n.Host != "" && n.Host != n.Uplink && n.Host != n.Overlay {
		list = append(list, processes...)
	}
	for _, a := range list {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return netset.Separate(out)
}

// AtUplink returns what the uplink's input denies: packets from these sources.
func AtUplink(from []netip.Prefix) (out []match.Atom) {
	for _, p := range from {
		out = append(out, forged(p, match.FamilyOf(p.Addr()).All()))
	}
	return out
}

// AtOverlay returns what the overlay's input denies: packets from these sources to destinations that the node takes for itself or its pods, perhaps
// by a Service. If the overlay's interface is the routed interface of a bridge domain (BVI), VPP evaluates its input list for the packets that leave
// by it, too (l2-input-feat-arc, 24.06 to 26.06). Those go to other nodes.
func AtOverlay(n *dataplane.Node, from []netip.Prefix) (out []match.Atom) {
	to := slices.Concat(n.Own, n.Frontends)
	for _, a := range slices.Concat(n.Hairpin, n.HostAddrs, n.Addrs) {
		to = append(to, netip.PrefixFrom(a, a.BitLen()))
	}
	to = netset.Separate(to)
	for _, p := range from {
		for _, dst := range to {
			out = append(out, forged(p, dst))
		}
		for _, o := range n.Outer {
			a := forged(p, netip.PrefixFrom(o.Addr, o.Addr.BitLen()))
			a.Proto, a.DstPorts = o.Proto, match.Span{Lo: o.Port, Hi: o.Port}
			out = append(out, a)
		}
	}
	return slices.DeleteFunc(out, func(a match.Atom) bool { return match.FamilyOf(a.Src.Addr()) != match.FamilyOf(a.Dst.Addr()) })
}

func forged(src, dst netip.Prefix) match.Atom {
	return match.Atom{Verb: match.Deny, Src: src, Dst: dst, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}
}
