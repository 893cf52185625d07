package selector

import "unique"

// Symbol is an interned string: equal texts are equal symbols, and symbols compare as fast as pointers. A cluster has
// few different label keys and values, and many copies of each. The zero value is no symbol.
type Symbol = unique.Handle[string]

// Intern returns the symbol of a text.
func Intern(text string) Symbol { return unique.Make(text) }

// symbols caches the symbols of one selector, whose keys and values occur several times.
type symbols struct {
	list [8]Symbol
	n    int
}

// symbolOf is Intern with a cache.
func (x *symbols) symbolOf(text string) Symbol {
	for _, known := range x.list[:x.n] {
		if known.Value() == text {
			return known
		}
	}
	s := Intern(text)
	if x.n < len(x.list) {
		x.list[x.n] = s
		x.n++
	}
	return s
}

// Labels return the value of a label, or false if the label does not exist.
type Labels interface {
	Get(key string) (value string, ok bool)
}

// Symbols are Labels with a look-up by symbol. Matching is fastest with them, because it compares no texts.
type Symbols interface {
	Labels
	Lookup(key Symbol) (value Symbol, ok bool)
}

// Map is a set of labels as Kubernetes has them. A nil Map has no labels.
type Map map[string]string

// Get implements Labels.
func (m Map) Get(key string) (string, bool) {
	value, ok := m[key]
	return value, ok
}
