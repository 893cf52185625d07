package conflict

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
)

// Peers is a set of addresses, computed at its first use. Nil is the empty set.
type Peers struct {
	compute func() []netip.Prefix // nil: done
	list    []netip.Prefix        // sorted, none within another
}

// Lazily returns the set of the addresses in the prefixes that compute returns, in any order. The set modifies the returned slice.
func Lazily(compute func() []netip.Prefix) *Peers { return &Peers{compute: compute} }

// PeersOf returns the set of the addresses in some prefixes.
func PeersOf(list ...netip.Prefix) *Peers {
	list = slices.Clone(list)
	return Lazily(func() []netip.Prefix { return list })
}

// Addrs returns the set of some addresses.
func Addrs(list []netip.Addr) *Peers {
	return Lazily(func() []netip.Prefix {
		out := make([]netip.Prefix, len(list))
		for i, a := range list {
			out[i] = netip.PrefixFrom(a, a.BitLen())
		}
		return out
	})
}

// Everything returns the set of all addresses.
func Everything() *Peers {
	return PeersOf(netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0))
}

// separated returns the set as a sorted list of separate prefixes.
func (p *Peers) separated() []netip.Prefix {
	if p == nil {
		return nil
	}
	if p.compute != nil {
		p.list, p.compute = netset.Separate(p.compute()), nil
	}
	return p.list
}

// Empty reports whether the set has no address.
func (p *Peers) Empty() bool { return len(p.separated()) == 0 }

// covers reports whether the set has an address.
func (p *Peers) covers(a netip.Addr) bool {
	list := p.separated()
	after, found := slices.BinarySearchFunc(list, a, func(e netip.Prefix, a netip.Addr) int { return e.Addr().Compare(a) })
	return found || after > 0 && list[after-1].Contains(a)
}

// coversAny reports whether the set has one of the addresses.
func (p *Peers) coversAny(list []netip.Addr) bool { return slices.ContainsFunc(list, p.covers) }

// with returns the union of two sets.
func (p *Peers) with(o *Peers) *Peers {
	have, more := p.separated(), o.separated()
	news := slices.DeleteFunc(slices.Clone(more), func(n netip.Prefix) bool {
		at, found := slices.BinarySearchFunc(have, n.Addr(), func(e netip.Prefix, a netip.Addr) int { return e.Addr().Compare(a) })
		if !found {
			at--
		}
		return at >= 0 && have[at].Bits() <= n.Bits() && have[at].Contains(n.Addr())
	})
	if len(news) == 0 {
		return p
	}
	return &Peers{list: netset.Separate(slices.Concat(have, news))}
}
