package calc

import (
	"math/bits"
	"net/netip"
)

// trie holds routes by network, with the paths between forks compressed. The path to a network meets all networks that
// contain it; the subtree below it holds all networks it contains.
type trie struct{ v4, v6 *trieNode }

type trieNode struct {
	prefix cidr
	info   *routeInfo // nil for a fork
	child  [2]*trieNode
}

func (c cidr) bit(i uint8) int {
	switch {
	case !c.v6:
		return int(c.lo >> (31 - i) & 1)
	case i < 64:
		return int(c.hi >> (63 - i) & 1)
	}
	return int(c.lo >> (127 - i) & 1)
}

// common is the number of leading bits that two networks of one family share, at most the length of the shorter.
func (c cidr) common(o cidr) uint8 {
	var n int
	switch {
	case !c.v6:
		n = bits.LeadingZeros32(uint32(c.lo ^ o.lo))
	case c.hi != o.hi:
		n = bits.LeadingZeros64(c.hi ^ o.hi)
	default:
		n = 64 + bits.LeadingZeros64(c.lo^o.lo)
	}
	return min(uint8(n), c.bits, o.bits)
}

func (c cidr) truncate(n uint8) cidr { return cidrOf(netip.PrefixFrom(c.addr(), int(n))) }

func (t *trie) root(p cidr) **trieNode {
	if p.v6 {
		return &t.v6
	}
	return &t.v4
}

// infoAt returns the information about a network, and creates an empty entry if there is none.
func (t *trie) infoAt(p cidr) *routeInfo {
	n := t.insert(p)
	if n.info == nil {
		n.info = &routeInfo{}
	}
	return n.info
}

func (t *trie) insert(p cidr) *trieNode {
	at := t.root(p)
	for {
		n := *at
		if n == nil {
			*at = &trieNode{prefix: p}
			return *at
		}
		c := n.prefix.common(p)
		switch {
		case c == n.prefix.bits && c == p.bits:
			return n
		case c == n.prefix.bits:
			at = &n.child[p.bit(c)]
		case c == p.bits:
			above := &trieNode{prefix: p}
			above.child[n.prefix.bit(c)] = n
			*at = above
			return above
		default:
			fork, leaf := &trieNode{prefix: p.truncate(c)}, &trieNode{prefix: p}
			fork.child[n.prefix.bit(c)], fork.child[p.bit(c)] = n, leaf
			*at = fork
			return leaf
		}
	}
}

// removeNetwork removes a network.
func (t *trie) removeNetwork(p cidr) {
	root := t.root(p)
	*root = (*root).without(p)
}

func (n *trieNode) without(p cidr) *trieNode {
	if n == nil || n.prefix.common(p) < n.prefix.bits {
		return n
	}
	if n.prefix == p {
		n.info = nil
	} else {
		i := p.bit(n.prefix.bits)
		n.child[i] = n.child[i].without(p)
	}
	switch {
	case n.info != nil:
		return n
	case n.child[0] == nil:
		return n.child[1]
	case n.child[1] == nil:
		return n.child[0]
	}
	return n
}

// path calls f with the information about each network that contains p, the widest first, p itself last.
func (t *trie) path(p cidr, f func(cidr, *routeInfo)) {
	for n := *t.root(p); n != nil && n.prefix.common(p) == n.prefix.bits; n = n.child[p.bit(n.prefix.bits)] {
		if n.info != nil {
			f(n.prefix, n.info)
		}
		if n.prefix.bits == p.bits {
			return
		}
	}
}

// below calls f with each known network that p contains, including p.
func (t *trie) below(p cidr, f func(cidr)) {
	n := *t.root(p)
	for n != nil && n.prefix.bits < p.bits && n.prefix.common(p) == n.prefix.bits {
		n = n.child[p.bit(n.prefix.bits)]
	}
	if n != nil && n.prefix.common(p) == p.bits {
		n.walk(f)
	}
}

func (n *trieNode) walk(f func(cidr)) {
	if n == nil {
		return
	}
	if n.info != nil {
		f(n.prefix)
	}
	n.child[0].walk(f)
	n.child[1].walk(f)
}
