package calc

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/selector"
)

// labelIndex finds which selectors match which items (endpoints, network sets). An item has labels of its own and
// parents (profiles) whose labels it inherits: its own win, then the parents' in the order of the item's list.
//
// Each selector is anchored at one label it cannot match without: the rarest one, so that a changed item meets only the
// selectors anchored at labels it carries, and a new selector looks only at the items that carry its anchor.
//
//	item ──holds──▶ pair app=web ◀──anchored── selector  app == 'web' && env == 'prod'
//	  └──names──▶ parent kns.prod ──holds──▶ pair pcns.team=a ◀── …
type labelIndex struct {
	labels     labelTable
	items      []indexItem // by handle
	parents    map[string]*parent
	selectors  []indexSelector // by handle
	unanchored idSet           // selectors that need no label
	live       int             // items in use

	view           view // scratch
	added, removed []uint32
	next           []uint32
}

type indexItem struct {
	live    bool
	pairs   []uint32 // own labels
	parents []*parent
	matches []uint32 // selectors, sorted
}

type parent struct {
	name  string
	known bool // it has been given, not only named
	pairs []uint32
	items idSet
}

type indexSelector struct {
	sel      *selector.Selector
	anchored bool
	pairs    []uint32    // anchored at these labels
	keys     []*labelKey // and at the presence of these
}

func newLabelIndex() *labelIndex {
	return &labelIndex{labels: newLabelTable(), parents: map[string]*parent{}}
}

// matches are the selectors item h matches, sorted. They are valid until the next change.
func (x *labelIndex) matches(h uint32) []uint32 {
	if int(h) >= len(x.items) {
		return nil
	}
	return x.items[h].matches
}

func (x *labelIndex) isMatch(item, sel uint32) bool {
	_, ok := slices.BinarySearch(x.items[item].matches, sel)
	return ok
}

// setItem gives item h its labels and parents and returns which selectors it began and ceased to match; the lists are
// valid until the next call.
func (x *labelIndex) setItem(h uint32, labels map[string]string, parents []string) (added, removed []uint32) {
	for int(h) >= len(x.items) {
		x.items = append(x.items, indexItem{})
	}
	it := &x.items[h]
	if it.live && x.labels.same(it.pairs, labels) && sameParents(it.parents, parents) {
		return nil, nil
	}
	if !it.live {
		it.live = true
		x.live++
	}
	old, oldParents := it.pairs, it.parents
	it.pairs = x.labels.holdAll(labels)
	it.parents = x.nameParents(parents)
	x.unlinkItem(h, old, oldParents)
	for _, id := range it.pairs {
		p := &x.labels.pairs[id]
		p.items.add(h)
		p.key.carriers++
	}
	for _, p := range it.parents {
		p.items.add(h)
	}
	x.labels.releaseAll(old)
	x.dropParents(oldParents)
	x.rescan(h)
	return x.added, x.removed
}

func (x *labelIndex) unlinkItem(h uint32, pairs []uint32, parents []*parent) {
	for _, id := range pairs {
		p := &x.labels.pairs[id]
		p.items.remove(h)
		p.key.carriers--
	}
	for _, p := range parents {
		p.items.remove(h)
	}
}

// dropItem forgets item h and returns the selectors it matched.
func (x *labelIndex) dropItem(h uint32) (removed []uint32) {
	it := &x.items[h]
	if !it.live {
		return nil
	}
	old := *it
	*it = indexItem{}
	x.live--
	x.unlinkItem(h, old.pairs, old.parents)
	x.labels.releaseAll(old.pairs)
	x.dropParents(old.parents)
	return old.matches
}

func sameParents(have []*parent, want []string) bool {
	return slices.EqualFunc(have, want, func(p *parent, name string) bool { return p.name == name })
}

func (x *labelIndex) nameParents(names []string) []*parent {
	if len(names) == 0 {
		return nil
	}
	list := make([]*parent, len(names))
	for i, name := range names {
		list[i] = x.parent(name)
	}
	return list
}

func (x *labelIndex) parent(name string) *parent {
	p := x.parents[name]
	if p == nil {
		p = &parent{name: name}
		x.parents[name] = p
	}
	return p
}

func (x *labelIndex) dropParents(list []*parent) {
	for _, p := range list {
		if !p.known && p.items.len() == 0 {
			delete(x.parents, p.name)
		}
	}
}

// setParent gives a parent its labels; known is false to forget them. changed is called for every item whose matches
// changed with it.
func (x *labelIndex) setParent(name string, labels map[string]string, known bool, changed func(item uint32, added, removed []uint32)) {
	p := x.parent(name)
	p.known = known
	if x.labels.same(p.pairs, labels) {
		x.dropParents([]*parent{p})
		return
	}
	old := p.pairs
	for _, id := range old {
		pair := &x.labels.pairs[id]
		delete(pair.hooks().parents, p)
		pair.key.carriers--
	}
	p.pairs = x.labels.holdAll(labels)
	for _, id := range p.pairs {
		pair := &x.labels.pairs[id]
		pair.hooks().parents[p] = true
		pair.key.carriers++
	}
	x.labels.releaseAll(old)
	p.items.each(func(h uint32) {
		if x.rescan(h); len(x.added)+len(x.removed) > 0 {
			changed(h, x.added, x.removed)
		}
	})
	x.dropParents([]*parent{p})
}

// look points the scratch view at the labels item h has, inherited ones included.
func (x *labelIndex) look(h uint32) *view {
	it := &x.items[h]
	v := &x.view
	v.table = &x.labels
	v.ids = append(v.ids[:0], it.pairs...)
	for _, p := range it.parents {
		for _, id := range p.pairs {
			if !v.hasKey(x.labels.pairs[id].key) {
				v.ids = append(v.ids, id)
			}
		}
	}
	return v
}

// rescan evaluates the selectors anchored at what item h carries; the differences are left in x.added and x.removed.
func (x *labelIndex) rescan(h uint32) {
	v := x.look(h)
	x.next = x.next[:0]
	try := func(s uint32) {
		if x.selectors[s].sel.Matches(v) {
			x.next = append(x.next, s)
		}
	}
	for _, id := range v.ids {
		p := &x.labels.pairs[id]
		if p.more != nil {
			p.more.selectors.each(try)
		}
		p.key.selectors.each(try)
	}
	x.unanchored.each(try)
	slices.Sort(x.next)
	x.next = slices.Compact(x.next) // an anchor may have several labels of one item
	it := &x.items[h]
	x.added, x.removed = diffSorted(it.matches, x.next, x.added[:0], x.removed[:0])
	if len(x.added)+len(x.removed) > 0 {
		it.matches = slices.Clone(x.next)
	}
}

// diffSorted appends what b has and a has not, and the reverse.
func diffSorted(a, b, added, removed []uint32) (plus, minus []uint32) {
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i == len(a) || j < len(b) && b[j] < a[i]:
			added = append(added, b[j])
			j++
		case j == len(b) || a[i] < b[j]:
			removed = append(removed, a[i])
			i++
		default:
			i++
			j++
		}
	}
	return added, removed
}

// addSelector begins to match selector s, and calls match with each item it matches, once. match must not change the
// index.
func (x *labelIndex) addSelector(s uint32, sel *selector.Selector, match func(item uint32)) {
	for int(s) >= len(x.selectors) {
		x.selectors = append(x.selectors, indexSelector{})
	}
	x.selectors[s].sel = sel
	x.anchor(s)
	x.candidates(s, func(h uint32) {
		it := &x.items[h]
		if _, known := slices.BinarySearch(it.matches, s); known || !sel.Matches(x.look(h)) {
			return
		}
		it.matches, _ = insertSorted(it.matches, s)
		match(h)
	})
}

// dropSelector forgets selector s, and calls match with each item that matched it, once.
func (x *labelIndex) dropSelector(s uint32, match func(item uint32)) {
	x.candidates(s, func(h uint32) {
		it := &x.items[h]
		var was bool
		if it.matches, was = removeSorted(it.matches, s); was {
			match(h)
		}
	})
	x.unanchor(s)
	x.selectors[s] = indexSelector{}
}

// eachMatch calls f with each item that matches selector s, perhaps more than once.
func (x *labelIndex) eachMatch(s uint32, f func(item uint32)) {
	x.candidates(s, func(h uint32) {
		if x.isMatch(h, s) {
			f(h)
		}
	})
}

// candidates calls f with every item that carries the anchor of s, perhaps more than once.
func (x *labelIndex) candidates(s uint32, f func(item uint32)) {
	sel := &x.selectors[s]
	if !sel.anchored {
		for h := range x.items {
			if x.items[h].live {
				f(uint32(h))
			}
		}
		return
	}
	for _, id := range sel.pairs {
		x.labels.pairs[id].carriers(f)
	}
	for _, k := range sel.keys {
		for _, id := range k.values {
			x.labels.pairs[id].carriers(f)
		}
	}
}
