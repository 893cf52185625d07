package match

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
)

// nat44 gives a pod the address of its node when the pod dials an endpoint directly, from a port from which a Service led there. On other nodes
// that packet looks like one of the node's own. So a rule that allows some sources allows no node's address: only a rule that allows all
// sources does. The same holds for the addresses of this node: see poolTable.

// known returns regions of sources without peers, if the clause allows some sources and not others.
func (x *Expander) known(src []region) []region {
	asks := func(m *Match) bool { return m.NamesSources }
	if len(x.Peers) == 0 || x.c.Verb != Allow || !slices.ContainsFunc(x.c.Matches, asks) {
		return src
	}
	out := outside(src, ofFamily(x.Peers, x.f))
	if len(out) > MaxAtoms {
		x.broad = true
		return nil
	}
	if !slices.Equal(out, src) && x.c.namesPeers(x.Peers) {
		x.Note(x.c, "lets in addresses of nodes: with nat44 a node's pods can send from them, so they are not let in (--trust-node-addresses lets them in)")
	}
	return out
}

// namesPeers reports whether a network of the clause contains a peer, except the network of all addresses.
func (c *Clause) namesPeers(peers []netip.Prefix) bool {
	return slices.ContainsFunc(c.Matches, func(m *Match) bool {
		return slices.ContainsFunc(m.Src.Nets, func(n netip.Prefix) bool {
			return n.Bits() > 0 && slices.ContainsFunc(peers, func(p netip.Prefix) bool { return n.Contains(p.Addr()) })
		})
	})
}

// WithoutPeers returns members of a set without peers, if atoms with these members as sources are allowed.
func (x *Expander) WithoutPeers(atoms []Atom, members []netip.Prefix) []netip.Prefix {
	if len(x.Peers) == 0 || len(atoms) == 0 || atoms[0].Verb != Allow {
		return members
	}
	peers := []netip.Prefix(ofFamily(x.Peers, FamilyOf(atoms[0].Dst.Addr())))
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
