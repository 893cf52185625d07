package acl

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// condenseFrom is the least number of rules of a table whose adjacent prefixes are joined.
const condenseFrom = 64

// joint is one rule in VPP for several rules of a table.
type joint struct {
	match.Atom
	from int32 // the first of those rules
}

// likeness is a rule without its peer's prefix.
type likeness struct {
	match.Atom
	cause *dataplane.Cause
}

// condensed returns the rules of a table with fewer prefixes for the same peers: 10.0.0.2/32 and 10.0.0.3/32 become 10.0.0.2/31. It joins
// rules that differ in the peer's prefix alone, and only two halves that both exist: an address without a pod today may be another pod's
// tomorrow. from has the index of the first table rule of each; nil: nothing was joined.
//
// The table itself does not change: interim.go compares openings and closings member by member.
func (t *table) condensed() (rules []match.Atom, from []int32) {
	if len(t.rules) < condenseFrom || slices.ContainsFunc(t.rules, func(a match.Atom) bool { return a.Verb != t.rules[0].Verb }) {
		return t.rules, nil
	}
	groups := map[likeness][]joint{}
	for i, a := range t.rules {
		j := joint{a, int32(i)}
		*t.peer(&a) = netip.Prefix{}
		k := likeness{a, t.causes[i]}
		groups[k] = t.join(groups[k], j)
	}
	var all []joint
	for _, list := range groups {
		all = append(all, list...)
	}
	if len(all) == len(t.rules) {
		return t.rules, nil
	}
	slices.SortFunc(all, func(a, b joint) int { return cmp.Compare(a.from, b.from) })
	rules, from = make([]match.Atom, len(all)), make([]int32, len(all))
	for i, j := range all {
		rules[i], from[i] = j.Atom, j.from
	}
	return rules, from
}

// join appends j to rules that differ from it in the peer alone; while the last two are halves of one prefix, it replaces them by that
// prefix.
func (t *table) join(list []joint, j joint) []joint {
	for n := len(list); n > 0; n = len(list) {
		whole, halves := t.whole(*t.peer(&list[n-1].Atom), *t.peer(&j.Atom))
		if !halves {
			break
		}
		j.from = list[n-1].from
		*t.peer(&j.Atom) = whole
		list = list[:n-1]
	}
	return append(list, j)
}

// whole returns the prefix that two prefixes are halves of; ok is false if they are not, or if VPP may not be able to compare it.
func (t *table) whole(a, b netip.Prefix) (p netip.Prefix, ok bool) {
	if a == b || a.Bits() != b.Bits() || a.Bits() == 0 || a.Addr().BitLen() != b.Addr().BitLen() || a.Addr().Is6() && !t.join6 {
		return p, false
	}
	p = netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return p, p.Contains(b.Addr())
}

// peer returns the prefix of the rule's peer, which is not the pod's.
func (t *table) peer(a *match.Atom) *netip.Prefix {
	if t.egress {
		return &a.Dst
	}
	return &a.Src
}
