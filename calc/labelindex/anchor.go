package labelindex

import "github.com/contiv-agent/contiv-agent/selector"

// anchor files selector s under the cheapest of the labels it cannot match without. A label costs the kinds that carry
// it, which are scanned once, now, and the selectors already filed there, which every new kind is compared with.
func (x *Index) anchor(s uint32) {
	entry := &x.selectors[s]
	terms, ok := x.cheapest(entry.sel)
	entry.anchored = ok
	if !ok {
		x.unanchored.addID(s)
		return
	}
	for _, t := range terms {
		if t.Value == (selector.Symbol{}) {
			k := x.labels.keyEntry(t.Key.Value())
			k.selectors.addID(s)
			entry.keys = append(entry.keys, k)
			continue
		}
		id := x.labels.hold(t.Key.Value(), t.Value.Value())
		x.labels.pairs[id].hooks().selectors.addID(s)
		entry.pairs = append(entry.pairs, id)
	}
}

func (x *Index) unanchor(s uint32) {
	entry := &x.selectors[s]
	if !entry.anchored {
		x.unanchored.removeID(s)
		return
	}
	for _, k := range entry.keys {
		k.selectors.removeID(s)
		x.labels.dropKey(k)
	}
	for _, id := range entry.pairs {
		x.labels.pairs[id].hooks().selectors.removeID(s)
		x.labels.releaseLabel(id)
	}
}

// cheapest returns the best list of labels to file a selector under; ok is false if it may match an item without
// labels.
func (x *Index) cheapest(sel *selector.Selector) (best []selector.Term, ok bool) {
	least := 0
	for _, terms := range sel.Anchors() {
		cost := 0
		for _, t := range terms {
			cost += x.cost(t)
		}
		if !ok || cost < least {
			best, least, ok = terms, cost, true
		}
	}
	return best, ok
}

func (x *Index) cost(t selector.Term) int {
	k := x.labels.keys[t.Key.Value()]
	if k == nil {
		return 0
	}
	if t.Value == (selector.Symbol{}) {
		return k.carriers + k.selectors.len()
	}
	if id, known := k.values[t.Value.Value()]; known {
		return x.labels.pairs[id].cost()
	}
	return 0
}
