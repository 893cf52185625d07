package labelindex

import (
	"encoding/binary"
	"slices"

	"github.com/contiv-agent/contiv-agent/selector"
)

// Index finds which selectors match which items (endpoints, network sets). An item has its own labels, and parents
// (profiles) whose labels it inherits: its own take precedence, then the parents' in the order of the item's list.
//
// Items with equal labels and parents, such as the pods of a Deployment, are of one kind. Selectors are matched with
// kinds. Each selector is anchored at one label it cannot match without, the rarest one. So a new kind is compared only
// with selectors anchored at labels it carries, and a new selector only with the kinds that carry its anchor.
//
//	item ──is of──▶ kind ──holds──▶ pair app=web ◀──anchored── selector  app == 'web' && env == 'prod'
//	                  └──names──▶ parent kns.prod ──holds──▶ pair pcns.team=a ◀── …
type Index struct {
	labels     labelTable
	items      []Place // by handle
	kinds      []kind  // by number; number 0 is no kind
	kindOf     map[kindKey]uint32
	numbers    Handles
	parents    map[string]*parent
	parentByID []*parent
	hasLabels  []bool // by a parent's number: the parent has labels
	parentIDs  Handles
	selectors  []indexSelector // by handle
	unanchored idSet           // selectors that need no label

	scratch
}

// scratch is room that each call uses again.
type scratch struct {
	view           view
	added, removed []uint32
	next           []uint32
	scanned        []uint32 // matches of the kind scanned last
	ids            []uint32
	key            []byte
}

// Place is an item's kind, and its position among the items of that kind.
type Place struct{ Kind, At uint32 }

const noKind = 0

// kind is the common part of all items with equal labels and parents.
type kind struct {
	key     kindKey
	matches []uint32 // selectors, sorted; replaced and never changed, because kinds share the list
	items   []uint32
}

// kindKey holds the labels (sorted) and the parents (in order) of a kind, as numbers of four bytes each. The first
// number says how many labels there are.
type kindKey string

func (k kindKey) numberAt(i int) uint32 {
	i *= 4
	return uint32(k[i]) | uint32(k[i+1])<<8 | uint32(k[i+2])<<16 | uint32(k[i+3])<<24
}

// labels calls f with the numbers of the labels.
func (k kindKey) labels(f func(pair uint32)) {
	for i := range int(k.numberAt(0)) {
		f(k.numberAt(i + 1))
	}
}

// parents calls f with the numbers of the parents.
func (k kindKey) parents(f func(parent uint32)) {
	for i := int(k.numberAt(0)) + 1; i < len(k)/4; i++ {
		f(k.numberAt(i))
	}
}

type indexSelector struct {
	sel      *selector.Selector
	anchored bool
	pairs    []uint32    // anchored at these labels
	keys     []*labelKey // anchored at the presence of these keys
}

// New returns an index without items and selectors.
func New() *Index {
	return &Index{
		labels: newLabelTable(), kinds: make([]kind, 1), kindOf: map[kindKey]uint32{}, parents: map[string]*parent{},
	}
}

// PlaceOf returns an item's kind, and its position there.
func (x *Index) PlaceOf(h uint32) Place { return x.items[h] }

// Held counts what the index holds, by part. Numbers given back and scratch space do not count.
func (x *Index) Held() map[string]int {
	return map[string]int{
		"kindOf": len(x.kindOf), "kinds": int(x.numbers.next) - len(x.numbers.free),
		"parents": len(x.parents), "parentIDs": int(x.parentIDs.next) - len(x.parentIDs.free),
		"unanchored": x.unanchored.len(), "labels.keys": len(x.labels.keys), "labels.pairs": len(x.labels.pairs) - len(x.labels.free),
	}
}

// Matches are the selectors that item h matches, sorted. The list is valid until the next change.
func (x *Index) Matches(h uint32) []uint32 {
	if int(h) >= len(x.items) {
		return nil
	}
	return x.kinds[x.items[h].Kind].matches
}

// IsMatch reports whether an item matches a selector.
func (x *Index) IsMatch(item, sel uint32) bool {
	_, ok := slices.BinarySearch(x.kinds[x.items[item].Kind].matches, sel)
	return ok
}

// SetItem sets the labels and parents of item h, and returns the selectors it began and ceased to match. The lists are
// valid until the next call.
func (x *Index) SetItem(h uint32, labels map[string]string, parents []string) (added, removed []uint32) {
	for int(h) >= len(x.items) {
		x.items = append(x.items, Place{})
	}
	old, now := x.items[h], x.kind(labels, parents)
	if old.Kind == now {
		return nil, nil
	}
	x.added, x.removed = diffSorted(x.kinds[old.Kind].matches, x.kinds[now].matches, x.added[:0], x.removed[:0])
	k := &x.kinds[now]
	x.items[h] = Place{now, uint32(len(k.items))}
	k.items = append(k.items, h)
	x.leaveKind(old)
	return x.added, x.removed
}

// DropItem removes item h and returns the selectors it matched. The list is valid until the next change.
func (x *Index) DropItem(h uint32) (removed []uint32) {
	removed = x.Matches(h)
	old := x.items[h]
	x.items[h] = Place{}
	x.leaveKind(old)
	return removed
}

// leaveKind removes the item at a position from its kind. The last item of the kind moves to that position.
func (x *Index) leaveKind(p Place) {
	if p.Kind == noKind {
		return
	}
	k := &x.kinds[p.Kind]
	last := len(k.items) - 1
	if moved := k.items[last]; int(p.At) != last {
		k.items[p.At] = moved
		x.items[moved].At = p.At
	}
	k.items = k.items[:last]
	if last == 0 {
		x.dropKind(p.Kind)
	}
}

// kind returns the number of a kind, and creates the kind if it is new.
func (x *Index) kind(labels map[string]string, parents []string) uint32 {
	if x.lookup(labels, parents) {
		if n, ok := x.kindOf[kindKey(x.key)]; ok {
			return n
		}
	}
	x.ids = append(x.ids[:0], x.labels.holdAll(labels)...)
	for _, name := range parents {
		x.ids = append(x.ids, x.parent(name).id)
	}
	key := kindKey(x.packKey(len(labels)))
	n := x.numbers.Assign() + 1
	if int(n) == len(x.kinds) {
		x.kinds = append(x.kinds, kind{})
	}
	x.kindOf[key] = n
	x.kinds[n].key = key
	key.labels(func(id uint32) {
		p := &x.labels.pairs[id]
		p.kinds.addID(n)
		p.key.carriers++
	})
	key.parents(func(id uint32) { x.parentByID[id].kinds.addID(n) })
	x.rescan(n)
	return n
}

// lookup leaves the key of a kind in x.key. It reports false if a label or parent is new, in which case the kind is
// new.
func (x *Index) lookup(labels map[string]string, parents []string) bool {
	x.ids = x.ids[:0]
	for k, v := range labels {
		id, ok := x.labels.findLabel(k, v)
		if !ok {
			return false
		}
		x.ids = append(x.ids, id)
	}
	slices.Sort(x.ids)
	for _, name := range parents {
		p := x.parents[name]
		if p == nil {
			return false
		}
		x.ids = append(x.ids, p.id)
	}
	x.packKey(len(labels))
	return true
}

// packKey turns x.ids, which begins with the labels, into a map key.
func (x *Index) packKey(labels int) []byte {
	x.key = binary.LittleEndian.AppendUint32(x.key[:0], uint32(labels))
	for _, id := range x.ids {
		x.key = binary.LittleEndian.AppendUint32(x.key, id)
	}
	return x.key
}

func (x *Index) dropKind(n uint32) {
	old := x.kinds[n]
	x.kinds[n] = kind{}
	delete(x.kindOf, old.key)
	x.numbers.GiveBack(n - 1)
	old.key.labels(func(id uint32) {
		p := &x.labels.pairs[id]
		p.kinds.removeID(n)
		p.key.carriers--
		x.labels.releaseLabel(id)
	})
	old.key.parents(func(id uint32) {
		if p := x.parentByID[id]; p != nil { // a parent may be named twice
			p.kinds.removeID(n)
			x.dropParent(p)
		}
	})
}

func (x *Index) parent(name string) *parent {
	p := x.parents[name]
	if p == nil {
		p = &parent{name: name, id: x.parentIDs.Assign()}
		x.parents[name] = p
		for int(p.id) >= len(x.parentByID) {
			x.parentByID, x.hasLabels = append(x.parentByID, nil), append(x.hasLabels, false)
		}
		x.parentByID[p.id] = p
	}
	return p
}

func (x *Index) dropParent(p *parent) {
	if !p.known && p.kinds.len() == 0 {
		delete(x.parents, p.name)
		x.parentByID[p.id] = nil
		x.parentIDs.GiveBack(p.id)
	}
}

// SetParent sets the labels of a parent; known is false to forget them. It calls changed for every item whose matches
// changed, item by item within a kind: all items of a kind change at once. changed must not change the index.
func (x *Index) SetParent(name string, labels map[string]string, known bool, changed func(item uint32, added, removed []uint32)) {
	p := x.parent(name)
	p.known = known
	if x.labels.sameLabels(p.pairs, labels) {
		x.dropParent(p)
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
	x.hasLabels[p.id] = len(p.pairs) > 0
	p.kinds.each(func(n uint32) {
		if x.rescan(n); len(x.added)+len(x.removed) > 0 {
			for _, h := range x.kinds[n].items {
				changed(h, x.added, x.removed)
			}
		}
	})
	x.dropParent(p)
}

// viewKind points the scratch view at the labels of a kind, including inherited ones.
func (x *Index) viewKind(n uint32) *view {
	k := x.kinds[n].key
	v := &x.view
	v.table, v.ids = &x.labels, v.ids[:0]
	k.labels(func(id uint32) { v.ids = append(v.ids, id) })
	k.parents(func(parent uint32) {
		for _, id := range x.parentByID[parent].pairs {
			if !v.hasKey(x.labels.pairs[id].key) {
				v.ids = append(v.ids, id)
			}
		}
	})
	return v
}

// ownOnly is the part of a kind's key that determines all its labels, if it inherits none; "" otherwise. Kinds that
// differ only in parents without labels need only one comparison.
func (x *Index) ownOnly(key kindKey) kindKey {
	own := 4 * (int(key.numberAt(0)) + 1)
	for i := own / 4; i < len(key)/4; i++ {
		if x.hasLabels[key.numberAt(i)] {
			return ""
		}
	}
	return key[:own]
}

// rescan evaluates the selectors anchored at labels of a kind. It leaves the differences in x.added and x.removed.
func (x *Index) rescan(n uint32) {
	v := x.viewKind(n)
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
	x.next = slices.Compact(x.next) // several labels of one kind may belong to one anchor
	k := &x.kinds[n]
	x.added, x.removed = diffSorted(k.matches, x.next, x.added[:0], x.removed[:0])
	if len(x.added)+len(x.removed) > 0 {
		if !slices.Equal(x.next, x.scanned) { // pods that arrive one after the other often match the same selectors
			x.scanned = slices.Clone(x.next)
		}
		k.matches = x.scanned
	}
}

// diffSorted appends the numbers that only b has to added, and those that only a has to removed.
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

// AddSelector adds selector s and calls match once with each item it matches, kind by kind. match must not change the
// index.
func (x *Index) AddSelector(s uint32, sel *selector.Selector, match func(item uint32)) {
	for int(s) >= len(x.selectors) {
		x.selectors = append(x.selectors, indexSelector{})
	}
	x.selectors[s].sel = sel
	x.anchor(s)
	var lists sharing
	last, lastMatched := kindKey(""), false
	x.candidates(s, func(n uint32) {
		k := &x.kinds[n]
		if _, known := slices.BinarySearch(k.matches, s); known {
			return
		}
		own := x.ownOnly(k.key)
		if own == "" || own != last {
			last, lastMatched = own, sel.Matches(x.viewKind(n))
		}
		if !lastMatched {
			return
		}
		k.matches = lists.insert(k.matches, s)
		for _, h := range k.items {
			match(h)
		}
	})
}

// DropSelector removes selector s and calls match once with each item that matched it.
func (x *Index) DropSelector(s uint32, match func(item uint32)) {
	var lists sharing
	x.candidates(s, func(n uint32) {
		k := &x.kinds[n]
		var was bool
		if k.matches, was = lists.removeNumber(k.matches, s); was {
			for _, h := range k.items {
				match(h)
			}
		}
	})
	x.unanchor(s)
	x.selectors[s] = indexSelector{}
}

// EachMatch calls f with each item that matches selector s, possibly more than once.
func (x *Index) EachMatch(s uint32, f func(item uint32)) {
	x.candidates(s, func(n uint32) {
		k := &x.kinds[n]
		if _, ok := slices.BinarySearch(k.matches, s); ok {
			for _, h := range k.items {
				f(h)
			}
		}
	})
}

// candidates calls f with every kind that carries the anchor of s, possibly more than once.
func (x *Index) candidates(s uint32, f func(kind uint32)) {
	sel := &x.selectors[s]
	if !sel.anchored {
		for _, n := range x.kindOf {
			f(n)
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
