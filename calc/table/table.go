package table

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Table holds one kind of object that goes to the data plane one by one: its desired state, its sent state, and the
// keys to compare. A flush sends only the difference, whatever happened in between.
type Table[K comparable, V any] struct {
	entries map[K]*entry[V]
	dirty   map[K]struct{}
	equal   func(a, b V) bool
}

type entry[V any] struct {
	want, sent    V
	wanted, known bool
}

// New returns an empty table. Values that are equal are sent once.
func New[K comparable, V any](equal func(a, b V) bool) *Table[K, V] {
	return &Table[K, V]{entries: map[K]*entry[V]{}, dirty: map[K]struct{}{}, equal: equal}
}

// Same compares values of a comparable type.
func Same[V comparable](a, b V) bool { return a == b }

func (t *Table[K, V]) Set(k K, v V) {
	e := t.entries[k]
	if e == nil {
		e = &entry[V]{}
		t.entries[k] = e
	}
	e.want, e.wanted = v, true
	t.dirty[k] = struct{}{}
}

func (t *Table[K, V]) Remove(k K) {
	if e := t.entries[k]; e != nil {
		e.wanted = false
		t.dirty[k] = struct{}{}
	}
}

// Flush returns the messages that make the sent state equal to the desired state, in the order of the keys.
func (t *Table[K, V]) Flush(compare func(a, b K) int, update func(K, V) *felix.ToDataplane, remove func(K) *felix.ToDataplane) (updates, removes []*felix.ToDataplane) {
	if len(t.dirty) == 0 {
		return nil, nil
	}
	keys := make([]K, 0, len(t.dirty))
	for k := range t.dirty {
		keys = append(keys, k)
	}
	clear(t.dirty)
	slices.SortFunc(keys, compare)
	for _, k := range keys {
		e := t.entries[k]
		switch {
		case e == nil:
		case !e.wanted:
			if e.known {
				removes = append(removes, remove(k))
			}
			delete(t.entries, k)
		case !e.known || !t.equal(e.sent, e.want):
			e.sent, e.known = e.want, true
			updates = append(updates, update(k, e.want))
		}
	}
	return updates, removes
}

// Held returns how many keys the table holds: those with a value, and those to compare at the next flush.
func (t *Table[K, V]) Held() int { return len(t.entries) + len(t.dirty) }
