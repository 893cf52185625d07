package encode

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/model"
)

// Table holds the keys of many objects, and turns an object's change into changes of keys.
type Table struct {
	base map[string]calico.KV   // keys that exist without objects
	keys map[model.Ref][]string // the keys of each object
}

// NewTable returns a table with the keys of base. Objects may replace them; when such an object is removed, the base value
// returns.
func NewTable(base []calico.KV) *Table {
	t := &Table{base: map[string]calico.KV{}, keys: map[model.Ref][]string{}}
	for _, kv := range base {
		t.base[kv.Key] = kv
	}
	return t
}

// Apply sets the keys of ref to list and returns the changes: deletes of keys that ref no longer has, then all of list.
func (t *Table) Apply(ref model.Ref, list []calico.KV) []calico.KV {
	var steps []calico.KV
	for _, k := range t.keys[ref] {
		if slices.ContainsFunc(list, func(kv calico.KV) bool { return kv.Key == k }) {
			continue
		}
		base := t.base[k]
		base.Key = k
		steps = append(steps, base)
	}
	if len(list) == 0 {
		delete(t.keys, ref)
		return steps
	}
	keys := make([]string, len(list))
	for i := range list {
		keys[i] = list[i].Key
	}
	t.keys[ref] = keys
	return append(steps, list...)
}

// Equal reports whether two lists of keys and values are equal, ignoring versions.
func Equal(a, b []calico.KV) bool { return slices.EqualFunc(a, b, calico.KV.Equal) }
