package route

import (
	"github.com/contiv-agent/contiv-agent/calc/cidr"
)

// trie holds routes by network, with the paths between forks compressed. The path to a network meets all networks that
// contain it; the subtree below it holds all networks it contains.
type trie struct{ v4, v6 *trieNode }

type trieNode struct {
	prefix cidr.CIDR
	info   *routeInfo // nil for a fork
	child  [2]*trieNode
}

func (t *trie) root(p cidr.CIDR) **trieNode {
	if p.V6 {
		return &t.v6
	}
	return &t.v4
}

// infoAt returns the information about a network, and creates an empty entry if there is none.
func (t *trie) infoAt(p cidr.CIDR) *routeInfo {
	n := t.insert(p)
	if n.info == nil {
		n.info = &routeInfo{}
	}
	return n.info
}

func (t *trie) insert(p cidr.CIDR) *trieNode {
	at := t.root(p)
	for {
		n := *at
		if n == nil {
			*at = &trieNode{prefix: p}
			return *at
		}
		c := n.prefix.Common(p)
		switch {
		case c == n.prefix.Bits && c == p.Bits:
			return n
		case c == n.prefix.Bits:
			at = &n.child[p.Bit(c)]
		case c == p.Bits:
			above := &trieNode{prefix: p}
			above.child[n.prefix.Bit(c)] = n
			*at = above
			return above
		default:
			fork, leaf := &trieNode{prefix: p.Truncate(c)}, &trieNode{prefix: p}
			fork.child[n.prefix.Bit(c)], fork.child[p.Bit(c)] = n, leaf
			*at = fork
			return leaf
		}
	}
}

// removeNetwork removes a network.
func (t *trie) removeNetwork(p cidr.CIDR) {
	root := t.root(p)
	*root = (*root).without(p)
}

func (n *trieNode) without(p cidr.CIDR) *trieNode {
	if n == nil || n.prefix.Common(p) < n.prefix.Bits {
		return n
	}
	if n.prefix == p {
		n.info = nil
	} else {
		i := p.Bit(n.prefix.Bits)
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
func (t *trie) path(p cidr.CIDR, f func(cidr.CIDR, *routeInfo)) {
	for n := *t.root(p); n != nil && n.prefix.Common(p) == n.prefix.Bits; n = n.child[p.Bit(n.prefix.Bits)] {
		if n.info != nil {
			f(n.prefix, n.info)
		}
		if n.prefix.Bits == p.Bits {
			return
		}
	}
}

// below calls f with each known network that p contains, including p.
func (t *trie) below(p cidr.CIDR, f func(cidr.CIDR)) {
	n := *t.root(p)
	for n != nil && n.prefix.Bits < p.Bits && n.prefix.Common(p) == n.prefix.Bits {
		n = n.child[p.Bit(n.prefix.Bits)]
	}
	if n != nil && n.prefix.Common(p) == p.Bits {
		n.walk(f)
	}
}

func (n *trieNode) walk(f func(cidr.CIDR)) {
	if n == nil {
		return
	}
	if n.info != nil {
		f(n.prefix)
	}
	n.child[0].walk(f)
	n.child[1].walk(f)
}
