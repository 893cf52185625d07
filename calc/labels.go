package calc

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/selector"
)

// A label is a key and a value; each distinct one in use is stored once and known by a number, so that an endpoint's
// labels are a few 32-bit words. A pair knows who carries it and which selectors wait for it.
type labelPair struct {
	key   *labelKey
	value selector.Symbol
	refs  int32  // items, parents and selectors that hold the number
	items idSet  // items that carry it themselves
	more  *hooks // nil: none, as for most pairs in a cluster
}

// hooks are the rarer holders of a label.
type hooks struct {
	parents   map[*parent]bool // that carry it
	selectors idSet            // anchored here
}

// hooks returns the pair's, making them if need be.
func (p *labelPair) hooks() *hooks {
	if p.more == nil {
		p.more = &hooks{parents: map[*parent]bool{}}
	}
	return p.more
}

// carriers calls f with the items that carry the label, themselves or by a parent; perhaps more than once.
func (p *labelPair) carriers(f func(item uint32)) {
	p.items.each(f)
	if p.more != nil {
		for parent := range p.more.parents {
			parent.items.each(f)
		}
	}
}

// cost is what hangs at the label: items and selectors.
func (p *labelPair) cost() int {
	n := p.items.len()
	if p.more == nil {
		return n
	}
	for parent := range p.more.parents {
		n += parent.items.len()
	}
	return n + p.more.selectors.len()
}

// labelKey is a label's name with the values in use.
type labelKey struct {
	name      selector.Symbol
	values    map[selector.Symbol]uint32
	carriers  int   // pairs held by items and parents, counted with multiplicity
	selectors idSet // selectors anchored at the mere presence of the label
}

// labelTable numbers labels.
type labelTable struct {
	keys  map[selector.Symbol]*labelKey
	pairs []labelPair
	free  []uint32
}

func newLabelTable() labelTable { return labelTable{keys: map[selector.Symbol]*labelKey{}} }

// key returns the entry of a label's name, making it if need be.
func (t *labelTable) key(name selector.Symbol) *labelKey {
	k := t.keys[name]
	if k == nil {
		k = &labelKey{name: name, values: map[selector.Symbol]uint32{}}
		t.keys[name] = k
	}
	return k
}

// hold returns the number of a label and counts one more holder.
func (t *labelTable) hold(name, value selector.Symbol) uint32 {
	k := t.key(name)
	id, ok := k.values[value]
	if !ok {
		if n := len(t.free); n > 0 {
			id, t.free = t.free[n-1], t.free[:n-1]
		} else {
			id = uint32(len(t.pairs))
			t.pairs = append(t.pairs, labelPair{})
		}
		t.pairs[id] = labelPair{key: k, value: value}
		k.values[value] = id
	}
	t.pairs[id].refs++
	return id
}

// release forgets one holder of a label.
func (t *labelTable) release(id uint32) {
	p := &t.pairs[id]
	if p.refs--; p.refs > 0 {
		return
	}
	k := p.key
	delete(k.values, p.value)
	*p = labelPair{}
	t.free = append(t.free, id)
	t.dropKey(k)
}

func (t *labelTable) dropKey(k *labelKey) {
	if len(k.values) == 0 && k.selectors.len() == 0 {
		delete(t.keys, k.name)
	}
}

// holdAll returns the numbers of labels, sorted.
func (t *labelTable) holdAll(labels map[string]string) []uint32 {
	if len(labels) == 0 {
		return nil
	}
	ids := make([]uint32, 0, len(labels))
	for k, v := range labels {
		ids = append(ids, t.hold(selector.Intern(k), selector.Intern(v)))
	}
	slices.Sort(ids)
	return ids
}

func (t *labelTable) releaseAll(ids []uint32) {
	for _, id := range ids {
		t.release(id)
	}
}

// same tells whether ids are exactly these labels.
func (t *labelTable) same(ids []uint32, labels map[string]string) bool {
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

// view is the labels of one item as a selector sees them.
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

func (v *view) hasKey(k *labelKey) bool {
	for _, id := range v.ids {
		if v.table.pairs[id].key == k {
			return true
		}
	}
	return false
}

// insertSorted adds id to a sorted list; it reports false if it was there.
func insertSorted(list []uint32, id uint32) ([]uint32, bool) {
	i, found := slices.BinarySearch(list, id)
	if found {
		return list, false
	}
	return slices.Insert(list, i, id), true
}

// removeSorted is the inverse of insertSorted.
func removeSorted(list []uint32, id uint32) ([]uint32, bool) {
	i, ok := slices.BinarySearch(list, id)
	if !ok {
		return list, false
	}
	return slices.Delete(list, i, i+1), true
}
