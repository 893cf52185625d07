package selector

import (
	"cmp"
	"slices"
)

// Term is a label as an index files it: a key with one value, or with any value. It is comparable and can be a map key.
type Term struct {
	Key   Symbol
	Value Symbol // the zero Symbol means any value
}

// Anchors are lists of terms. Everything that s matches has at least one term of each list. So an index files s under
// all terms of one list, the one with the fewest candidates, and finds s by two look-ups for each label: its key with
// its value, and its key with any value. No list means that s may match something without labels. One list without
// terms means that s matches nothing. The lists are shared: do not change them.
func (s *Selector) Anchors() [][]Term { return s.anchors }

// Never reports whether s is known to match nothing, such as "!all()" or "a == 'x' && a == 'y'".
func (s *Selector) Never() bool { return len(s.anchors) == 1 && len(s.anchors[0]) == 0 }

const (
	// maxAnchors bounds the number of lists over several keys, and so the work of distributing || over &&.
	maxAnchors = 8
	// maxFactors bounds the number of lists from each side of an || that are combined.
	maxFactors = 4
	// maxWide bounds the terms of a list over several keys: deep nesting would combine long lists repeatedly.
	maxWide = 256
)

// facts are conditions that hold for all labels an expression matches.
type facts struct {
	never bool        // nothing matches; the other fields are empty
	keys  []keyDomain // conditions on single keys, sorted by key
	wide  []anchor    // lists over several keys; conditions on one key are in keys
}

// anchor is a list of terms of which one must hold, sorted by key and value; any value sorts first.
type anchor []textTerm

type textTerm struct {
	key, value string
	any        bool
}

func compareTerms(a, b textTerm) int {
	if c := cmp.Compare(a.key, b.key); c != 0 {
		return c
	}
	if a.any != b.any {
		if a.any {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.value, b.value)
}

// analyse returns the facts that follow from n, or from its negation.
func analyse(n *node, negated bool) facts {
	switch n.op {
	case opNot:
		return analyse(n.kids[0], !negated)
	case opAnd:
		return analyseAll(n.kids, negated, !negated)
	case opOr:
		return analyseAll(n.kids, negated, negated)
	case opAll, opGlobal:
		return facts{never: negated}
	}
	d, exact := n.domain()
	if negated {
		if !exact {
			return facts{}
		}
		d = d.complement()
	}
	switch {
	case d.nothing():
		return facts{never: true}
	case d.anything():
		return facts{}
	}
	return facts{keys: []keyDomain{{n.key, d}}}
}

// domain returns the values that pass the test. It is exact if all labels in the domain pass.
func (n *node) domain() (d domain, exact bool) {
	switch n.op {
	case opEq, opIn:
		return domain{values: n.values}, true
	case opNe, opNotIn:
		return domain{absent: true, rest: true, values: n.values}, true
	case opHas:
		return domain{rest: true}, true
	default: // opContains, opStarts, opEnds
		return domain{rest: true}, false
	}
}

// analyseAll splits the list in halves, so that a long list of values is merged a few times and not once per member.
func analyseAll(kids []*node, negated, conjunction bool) facts {
	if len(kids) == 1 {
		return analyse(kids[0], negated)
	}
	half := len(kids) / 2
	a := analyseAll(kids[:half], negated, conjunction)
	b := analyseAll(kids[half:], negated, conjunction)
	if conjunction {
		return both(a, b)
	}
	return either(a, b)
}

func both(a, b facts) facts {
	if a.never || b.never {
		return facts{never: true}
	}
	keys, never := intersectKeys(a.keys, b.keys)
	if never {
		return facts{never: true}
	}
	return facts{keys: keys, wide: shortest(slices.Concat(a.wide, b.wide), maxAnchors)}
}

func either(a, b facts) facts {
	if a.never {
		return b
	}
	if b.never {
		return a
	}
	out := facts{keys: uniteKeys(a.keys, b.keys)}
	for _, x := range shortest(a.lists(maxWide), maxFactors) {
		for _, y := range shortest(b.lists(maxWide), maxFactors) {
			oneKey := x.onlyKey() != "" && x.onlyKey() == y.onlyKey() // then out.keys has it already
			if !oneKey && len(x)+len(y) <= maxWide {
				out.wide = append(out.wide, unite(x, y))
			}
		}
	}
	out.wide = shortest(out.wide, maxAnchors)
	return out
}

func shortest(lists []anchor, most int) []anchor {
	if len(lists) > most {
		slices.SortStableFunc(lists, func(a, b anchor) int { return cmp.Compare(len(a), len(b)) })
		lists = lists[:most]
	}
	return lists
}

// lists are the lists of single keys that must be present and have at most that many values, and the wide lists.
func (f facts) lists(most int) []anchor {
	var out []anchor
	for _, k := range f.keys {
		if !k.absent && (k.rest || len(k.values) <= most) {
			out = append(out, k.anchor())
		}
	}
	return append(out, f.wide...)
}

func (k keyDomain) anchor() anchor {
	if k.rest {
		return anchor{{key: k.key, any: true}}
	}
	out := make(anchor, len(k.values))
	for i, v := range k.values {
		out[i] = textTerm{key: k.key, value: v}
	}
	return out
}

// onlyKey is the only key of a, or "" if it has several. The list is sorted and not empty.
func (a anchor) onlyKey() string {
	if a[0].key != a[len(a)-1].key {
		return ""
	}
	return a[0].key
}

// unite has the terms of both lists, without values of a key that may have any value.
func unite(a, b anchor) anchor {
	out := slices.Concat(a, b)
	slices.SortFunc(out, compareTerms)
	kept := out[:1]
	for _, t := range out[1:] {
		last := kept[len(kept)-1]
		if t == last || last.any && last.key == t.key {
			continue
		}
		kept = append(kept, t)
	}
	return kept
}

// anchors returns the lists as symbols.
func (f facts) anchors(known *symbols) [][]Term {
	if f.never {
		return [][]Term{{}}
	}
	n, terms := len(f.wide), 0
	for _, k := range f.keys {
		if !k.absent {
			n, terms = n+1, terms+k.terms()
		}
	}
	if n == 0 {
		return nil
	}
	anchors, room := make([][]Term, 0, n), make([]Term, 0, terms)
	for _, k := range f.keys {
		if k.absent {
			continue
		}
		start := len(room)
		if k.rest {
			room = append(room, Term{Key: known.symbolOf(k.key)})
		} else {
			for _, v := range k.values {
				room = append(room, Term{Key: known.symbolOf(k.key), Value: known.symbolOf(v)})
			}
		}
		anchors = append(anchors, room[start:len(room):len(room)])
	}
	for _, list := range f.wide {
		out := make([]Term, len(list))
		for i, t := range list {
			if out[i].Key = Intern(t.key); !t.any {
				out[i].Value = Intern(t.value)
			}
		}
		anchors = append(anchors, out)
	}
	return anchors
}

// terms is the number of terms in a list of the key alone.
func (k keyDomain) terms() int {
	if k.rest {
		return 1
	}
	return len(k.values)
}
