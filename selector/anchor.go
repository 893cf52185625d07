package selector

import (
	"cmp"
	"slices"
)

// Term is a label as an index files it: a key with one value, or with any. It is comparable: use it as a map key.
type Term struct {
	Key   Symbol
	Value Symbol // the zero Symbol: any value
}

// Anchors are lists of terms; of each list, whatever s matches has at least one term. So an index that files s under all
// terms of one list, whichever has the fewest candidates in this cluster, finds s by the two terms of each label: its key with
// its value, and its key with any. No list: s may match what has no labels at all. One list without terms: s matches nothing.
// The lists are shared: do not change them.
func (s *Selector) Anchors() [][]Term { return s.anchors }

// Never is true if s is known to match nothing, such as "!all()" or "a == 'x' && a == 'y'".
func (s *Selector) Never() bool { return len(s.anchors) == 1 && len(s.anchors[0]) == 0 }

const (
	// maxAnchors bounds the lists over several keys that are kept, and so the work of distributing || over &&.
	maxAnchors = 8
	// maxFactors bounds the lists of each side of an || that are combined.
	maxFactors = 4
	// maxWide bounds the terms of a list over several keys: deep nesting would combine long ones again and again.
	maxWide = 256
)

// facts is what must hold of labels that an expression matches.
type facts struct {
	never bool        // nothing matches; the rest is empty
	keys  []keyDomain // by key
	wide  []anchor    // lists over several keys; what is said of one key is in keys
}

// anchor is terms, sorted by key and value, of which one must hold; any is before all values.
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

// analyse returns what follows from n, or from its negation.
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

// domain is exact if labels in it always pass the test.
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

// analyseAll halves the list, so that long lists of values are merged a few times and not once for each member.
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
			oneKey := x.key() != "" && x.key() == y.key() // then out.keys says it
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

// lists are those of single keys that must be present, if they have at most so many values, and the wide ones.
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

// key is the only key of a, or "". The list is sorted and has a term.
func (a anchor) key() string {
	if a[0].key != a[len(a)-1].key {
		return ""
	}
	return a[0].key
}

// unite has the terms of both, but for values of a key that may have any.
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

// anchors are the lists with symbols.
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
			room = append(room, Term{Key: known.of(k.key)})
		} else {
			for _, v := range k.values {
				room = append(room, Term{Key: known.of(k.key), Value: known.of(v)})
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

// terms is how many a list of the key alone has.
func (k keyDomain) terms() int {
	if k.rest {
		return 1
	}
	return len(k.values)
}
