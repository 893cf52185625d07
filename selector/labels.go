package selector

import "unique"

// Symbol is an interned string: equal texts are equal symbols, compared as fast as pointers. A cluster has few
// different label keys and values, and many copies of each. The zero value is no symbol.
type Symbol = unique.Handle[string]

// Intern returns the symbol of a text.
func Intern(text string) Symbol { return unique.Make(text) }

// symbols remembers the symbols of one selector, whose keys and values come up more than once.
type symbols struct {
	list [8]Symbol
	n    int
}

// of is Intern.
func (x *symbols) of(text string) Symbol {
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

// Labels tell the value of a label, or that there is no such label.
type Labels interface {
	Get(key string) (value string, ok bool)
}

// Symbols is Labels that know their symbols: matching compares no texts then, and is fastest.
type Symbols interface {
	Labels
	Lookup(key Symbol) (value Symbol, ok bool)
}

// Map is labels as Kubernetes has them. A nil Map is no labels.
type Map map[string]string

// Get implements Labels.
func (m Map) Get(key string) (string, bool) {
	value, ok := m[key]
	return value, ok
}
