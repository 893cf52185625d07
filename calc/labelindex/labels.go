package labelindex

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/selector"
)

// labelPair is a label: a key and a value. Each label in use is stored once and has a number, so that a kind's labels
// take a few 32-bit words. The pair records which kinds carry it and which selectors are anchored at it.
type labelPair struct {
	key   *labelKey
	value selector.Symbol
	refs  int32  // kinds, parents and selectors that hold the number
	kinds idSet  // kinds that carry it themselves
	more  *hooks // nil for most pairs of a cluster
}

// hooks are the rarer holders of a label.
type hooks struct {
	parents   map[*parent]bool // parents that carry it
	selectors idSet            // selectors anchored here
}

// hooks returns the pair's hooks, and creates them if there are none.
func (p *labelPair) hooks() *hooks {
	if p.more == nil {
		p.more = &hooks{parents: map[*parent]bool{}}
	}
	return p.more
}

// carriers calls f with the kinds that carry the label, themselves or by a parent, possibly more than once.
func (p *labelPair) carriers(f func(kind uint32)) {
	p.kinds.each(f)
	if p.more != nil {
		for parent := range p.more.parents {
			parent.kinds.each(f)
		}
	}
}

// cost is the number of kinds and selectors at the label.
func (p *labelPair) cost() int {
	n := p.kinds.len()
	if p.more == nil {
		return n
	}
	for parent := range p.more.parents {
		n += parent.kinds.len()
	}
	return n + p.more.selectors.len()
}

// labelKey is the key of labels, with the values in use.
type labelKey struct {
	name      selector.Symbol
	values    map[string]uint32
	carriers  int   // pairs held by kinds and parents, counted with multiplicity
	selectors idSet // selectors anchored at the presence of the key
}

// labelTable assigns numbers to labels.
type labelTable struct {
	keys  map[string]*labelKey
	pairs []labelPair
	free  []uint32
}

func newLabelTable() labelTable { return labelTable{keys: map[string]*labelKey{}} }

// keyEntry returns the entry of a label's key, and creates it if there is none.
func (t *labelTable) keyEntry(name string) *labelKey {
	k := t.keys[name]
	if k == nil {
		k = &labelKey{name: selector.Intern(name), values: map[string]uint32{}}
		t.keys[k.name.Value()] = k
	}
	return k
}

// findLabel returns the number of a label that is in use.
func (t *labelTable) findLabel(name, value string) (id uint32, ok bool) {
	if k := t.keys[name]; k != nil {
		id, ok = k.values[value]
	}
	return id, ok
}

// hold returns the number of a label and counts one more holder.
func (t *labelTable) hold(name, value string) uint32 {
	k := t.keyEntry(name)
	id, ok := k.values[value]
	if !ok {
		if n := len(t.free); n > 0 {
			id, t.free = t.free[n-1], t.free[:n-1]
		} else {
			id = uint32(len(t.pairs))
			t.pairs = append(t.pairs, labelPair{})
		}
		t.pairs[id] = labelPair{key: k, value: selector.Intern(value)}
		k.values[t.pairs[id].value.Value()] = id
	}
	t.pairs[id].refs++
	return id
}

// releaseLabel counts one holder less of a label.
func (t *labelTable) releaseLabel(id uint32) {
	p := &t.pairs[id]
	if p.refs--; p.refs > 0 {
		return
	}
	k := p.key
	delete(k.values, p.value.Value())
	*p = labelPair{}
	t.free = append(t.free, id)
	t.dropKey(k)
}

func (t *labelTable) dropKey(k *labelKey) {
	if len(k.values) == 0 && k.selectors.len() == 0 {
		delete(t.keys, k.name.Value())
	}
}

// holdAll returns the numbers of labels, sorted.
func (t *labelTable) holdAll(labels map[string]string) []uint32 {
	if len(labels) == 0 {
		return nil
	}
	ids := make([]uint32, 0, len(labels))
	for k, v := range labels {
		ids = append(ids, t.hold(k, v))
	}
	slices.Sort(ids)
	return ids
}

func (t *labelTable) releaseAll(ids []uint32) {
	for _, id := range ids {
		t.releaseLabel(id)
	}
}

// sameLabels reports whether ids are exactly these labels.
func (t *labelTable) sameLabels(ids []uint32, labels map[string]string) bool {
	if len(ids) != len(labels) {
		return false
	}
	for _, id := range ids {
		p := &t.pairs[id]
		if v, ok := labels[p.key.name.Value()]; !ok || v != p.value.Value() {
			return false
		}
	}
	return true
}

// view is the labels of one kind as a selector reads them.
type view struct {
	table *labelTable
	ids   []uint32 // at most one per key
}

// Get implements selector.Labels. Equal symbols have equal pointers, so comparing their texts is cheap.
func (v *view) Get(name string) (string, bool) {
	for _, id := range v.ids {
		if p := &v.table.pairs[id]; p.key.name.Value() == name {
			return p.value.Value(), true
		}
	}
	return "", false
}

// Lookup implements selector.Symbols.
func (v *view) Lookup(name selector.Symbol) (selector.Symbol, bool) {
	for _, id := range v.ids {
		if p := &v.table.pairs[id]; p.key.name == name {
			return p.value, true
		}
	}
	return selector.Symbol{}, false
}

func (v *view) hasKey(k *labelKey) bool {
	for _, id := range v.ids {
		if v.table.pairs[id].key == k {
			return true
		}
	}
	return false
}

type parent struct {
	name  string
	id    uint32
	known bool // set by setParent, not only named by an item
	pairs []uint32
	kinds idSet // kinds that name it
}
