package match

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// CondenseFrom is the least number of rules of a table whose adjacent prefixes are joined.
const CondenseFrom = 64

// joint is one rule in VPP for several rules of a table.
type joint struct {
	Atom
	from int32 // the first of those rules
}

// likeness is a rule without its peer's prefix.
type likeness struct {
	Atom
	cause *dataplane.Cause
}

// Condenser joins the rules of a table.
type Condenser struct {
	Egress bool // the peer is the destination
	Join6  bool // VPP compares IPv6 prefixes bit by bit, so that adjacent ones may be joined
}

// Condense returns the rules of a table with fewer prefixes for the same peers: 10.0.0.2/32 and 10.0.0.3/32 become 10.0.0.2/31. It joins
// rules that differ in the peer's prefix alone, and only two halves that both exist: an address without a pod today may be another pod's
// tomorrow. from has the index of the first table rule of each; nil: nothing was joined.
//
// The table itself does not change: a renderer compares openings and closings member by member. Causes has the cause of each rule.
func (t Condenser) Condense(table []Atom, causes []*dataplane.Cause) (rules []Atom, from []int32) {
	if len(table) < CondenseFrom || slices.ContainsFunc(table, func(a Atom) bool { return a.Verb != table[0].Verb }) {
		return table, nil
	}
	groups := map[likeness][]joint{}
	for i, a := range table {
		j := joint{a, int32(i)}
		*t.peerOf(&a) = netip.Prefix{}
		k := likeness{a, causes[i]}
		groups[k] = t.joinTo(groups[k], j)
	}
	var all []joint
	for _, list := range groups {
		all = append(all, list...)
	}
	if len(all) == len(table) {
		return table, nil
	}
	slices.SortFunc(all, func(a, b joint) int { return cmp.Compare(a.from, b.from) })
	rules, from = make([]Atom, len(all)), make([]int32, len(all))
	for i, j := range all {
		rules[i], from[i] = j.Atom, j.from
	}
	return rules, from
}

// joinTo appends j to rules that differ from it in the peer alone; while the last two are halves of one prefix, it replaces them by that
// prefix.
func (t Condenser) joinTo(list []joint, j joint) []joint {
	for n := len(list); n > 0; n = len(list) {
		whole, halves := t.wholeOf(*t.peerOf(&list[n-1].Atom), *t.peerOf(&j.Atom))
		if !halves {
			break
		}
		j.from = list[n-1].from
		*t.peerOf(&j.Atom) = whole
		list = list[:n-1]
	}
	return append(list, j)
}

// wholeOf returns the prefix that two prefixes are halves of; ok is false if they are not, or if VPP may not be able to compare it.
func (t Condenser) wholeOf(a, b netip.Prefix) (p netip.Prefix, ok bool) {
	if a == b || a.Bits() != b.Bits() || a.Bits() == 0 || a.Addr().BitLen() != b.Addr().BitLen() || a.Addr().Is6() && !t.Join6 {
		return p, false
	}
	p = netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return p, p.Contains(b.Addr())
}

// peerOf returns the prefix of the rule's peer, which is not the pod's.
func (t Condenser) peerOf(a *Atom) *netip.Prefix {
	if t.Egress {
		return &a.Dst
	}
	return &a.Src
}
