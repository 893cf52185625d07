package acl

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// nat44 gives a pod the address of its node when the pod dials an endpoint directly, from a port from which a Service led there. On other nodes
// that packet looks like one of the node's own. So a rule that allows some sources allows no node's address: only a rule that allows all
// sources does. The same holds for the addresses of this node: see poolTable.

// peersOf returns the addresses of other nodes that the ingress rules of pods must not admit; nil: NAT gives them to no other sender.
func (r *Renderer) peersOf(seg *segment) (out []netip.Prefix) {
	if seg.scope.egress || seg.host || seg.answers {
		return nil
	}
	for _, a := range r.node.Peers {
		if r.view(familyOf(a)) == dataplane.PreDNAT {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// known returns regions of sources without peers, if the clause allows some sources and not others.
func (x *expander) known(src []region) []region {
	asks := func(m *match) bool { return m.asksFrom }
	if len(x.peers) == 0 || x.c.verb != allow || !slices.ContainsFunc(x.c.matches, asks) {
		return src
	}
	out := outside(src, ofFamily(x.peers, x.f))
	if len(out) > maxAtoms {
		x.broad = true
		return nil
	}
	if !slices.Equal(out, src) && x.c.namesPeers(x.peers) {
		x.note(x.c, "lets in addresses of nodes: with nat44 a node's pods can send from them, so they are not let in (--trust-node-addresses lets them in)")
	}
	return out
}

// namesPeers reports whether a network of the clause contains a peer, except the network of all addresses.
func (c *clause) namesPeers(peers []netip.Prefix) bool {
	return slices.ContainsFunc(c.matches, func(m *match) bool {
		return slices.ContainsFunc(m.src.nets, func(n netip.Prefix) bool {
			return n.Bits() > 0 && slices.ContainsFunc(peers, func(p netip.Prefix) bool { return n.Contains(p.Addr()) })
		})
	})
}

// unknownOut returns members of a set without peers, if atoms with these members as sources are allowed.
func (x *expander) unknownOut(atoms []atom, members []netip.Prefix) []netip.Prefix {
	if len(x.peers) == 0 || len(atoms) == 0 || atoms[0].verb != allow {
		return members
	}
	peers := []netip.Prefix(ofFamily(x.peers, familyOf(atoms[0].dst.Addr())))
	holds := func(m netip.Prefix) bool { return len(netset.Inside(peers, m)) > 0 }
	if !slices.ContainsFunc(members, holds) {
		return members
	}
	var out []netip.Prefix
	for _, m := range members {
		out = netset.Rest(out, m, netset.Inside(peers, m))
	}
	return out
}
