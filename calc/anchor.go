package calc

import "github.com/contiv-agent/contiv-agent/selector"

// anchor hangs selector s at the labels, among those it cannot match without, that cost least: few kinds carry them
// (they are scanned once, now) and few selectors hang there already (each new kind meets them).
func (x *labelIndex) anchor(s uint32) {
	entry := &x.selectors[s]
	terms, ok := x.cheapest(entry.sel)
	entry.anchored = ok
	if !ok {
		x.unanchored.add(s)
		return
	}
	for _, t := range terms {
		if t.Value == (selector.Symbol{}) {
			k := x.labels.key(t.Key.Value())
			k.selectors.add(s)
			entry.keys = append(entry.keys, k)
			continue
		}
		id := x.labels.hold(t.Key.Value(), t.Value.Value())
		x.labels.pairs[id].hooks().selectors.add(s)
		entry.pairs = append(entry.pairs, id)
	}
}

func (x *labelIndex) unanchor(s uint32) {
	entry := &x.selectors[s]
	if !entry.anchored {
		x.unanchored.remove(s)
		return
	}
	for _, k := range entry.keys {
		k.selectors.remove(s)
		x.labels.dropKey(k)
	}
	for _, id := range entry.pairs {
		x.labels.pairs[id].hooks().selectors.remove(s)
		x.labels.release(id)
	}
}

// cheapest returns the best list of labels to hang a selector at; ok is false if it may match what has no labels.
func (x *labelIndex) cheapest(sel *selector.Selector) (best []selector.Term, ok bool) {
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

func (x *labelIndex) cost(t selector.Term) int {
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
