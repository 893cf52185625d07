package acl

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// condenseFrom is how many rules a table has at least in which neighbours are joined.
const condenseFrom = 64

// joint is what some rules of a table are in VPP together.
type joint struct {
	atom
	from int32 // the first of them
}

// likeness is a rule without its peer's prefix.
type likeness struct {
	atom
	cause *dataplane.Cause
}

// condensed is the rules of a table with fewer prefixes for the same peers: 10.0.0.2/32 and 10.0.0.3/32 are 10.0.0.2/31. It joins rules that
// differ in the peer's prefix alone, and only halves that are both there: an address that no pod has yet may be another pod's tomorrow.
// from are the rules of the table that they begin with; nil: nothing was joined.
//
// The table stays as it is: what opens and what closes is compared member by member (interim.go).
func (t *table) condensed() (rules []atom, from []int32) {
	if len(t.rules) < condenseFrom || slices.ContainsFunc(t.rules, func(a atom) bool { return a.verb != t.rules[0].verb }) {
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
	rules, from = make([]atom, len(all)), make([]int32, len(all))
	for i, j := range all {
		rules[i], from[i] = j.atom, j.from
	}
	return rules, from
}

// join appends j to rules that differ from it in the peer alone; as long as the last two are halves of one prefix, they become that.
func (t *table) join(list []joint, j joint) []joint {
	for n := len(list); n > 0; n = len(list) {
		whole, halves := t.whole(*t.peer(&list[n-1].atom), *t.peer(&j.atom))
		if !halves {
			break
		}
		j.from = list[n-1].from
		*t.peer(&j.atom) = whole
		list = list[:n-1]
	}
	return append(list, j)
}

// whole is the prefix of which two are the halves; ok is false if they are not, or VPP may not be able to compare it.
func (t *table) whole(a, b netip.Prefix) (p netip.Prefix, ok bool) {
	if a == b || a.Bits() != b.Bits() || a.Bits() == 0 || a.Addr().BitLen() != b.Addr().BitLen() || a.Addr().Is6() && !t.join6 {
		return p, false
	}
	p = netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return p, p.Contains(b.Addr())
}

// peer is the prefix of a rule that is not the pod's.
func (t *table) peer(a *atom) *netip.Prefix {
	if t.egress {
		return &a.dst
	}
	return &a.src
}
