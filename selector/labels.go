package selector

import (
	"slices"
	"strings"
	"unique"
)

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

// Symbols is Labels that know their symbols: matching compares no texts then.
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

// Label is a key and its value.
type Label struct{ Key, Value Symbol }

// Set is interned labels: of its own, and inherited ones where it has none of its own. Matching a *Set is
// faster than matching other Labels. A Set never changes; a nil *Set is no labels.
type Set struct {
	own     []Label // sorted by text of the key, so that equal labels make equal sets
	parents []*Set  // the first that has a key wins
	ownBits uint64  // of own keys
	allBits uint64  // and of inherited ones
}

// keyBit is the one of 64 bits that stands for a key. A set without it cannot have the key: most labels a selector asks
// for in vain are found missing without a look at any.
func keyBit(key string) uint8 {
	h := uint32(2166136261) // FNV-1a
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return uint8((h ^ h>>16) % 64)
}

// NewSet interns labels. Parents are inherited from in their order; nil ones do not count.
func NewSet(labels map[string]string, parents ...*Set) *Set {
	s := &Set{own: make([]Label, 0, len(labels))}
	for k, v := range labels {
		s.own = append(s.own, Label{Intern(k), Intern(v)})
		s.ownBits |= 1 << keyBit(k)
	}
	slices.SortFunc(s.own, func(a, b Label) int { return strings.Compare(a.Key.Value(), b.Key.Value()) })
	return s.Inherit(parents...)
}

// Inherit returns a set with the own labels of s (shared, not copied) and other parents.
func (s *Set) Inherit(parents ...*Set) *Set {
	c := &Set{}
	if s != nil {
		c.own, c.ownBits, c.allBits = s.own, s.ownBits, s.ownBits
	}
	for _, p := range parents {
		if p != nil {
			c.parents = append(c.parents, p)
			c.allBits |= p.allBits
		}
	}
	return c
}

// Get implements Labels.
func (s *Set) Get(key string) (string, bool) {
	if value, ok := s.Lookup(Intern(key)); ok {
		return value.Value(), true
	}
	return "", false
}

// Lookup implements Symbols.
func (s *Set) Lookup(key Symbol) (Symbol, bool) { return s.find(key, keyBit(key.Value())) }

func (s *Set) find(key Symbol, bit uint8) (Symbol, bool) {
	if s == nil || s.allBits>>bit&1 == 0 {
		return Symbol{}, false
	}
	if s.ownBits>>bit&1 != 0 {
		for i := range s.own { // a scan: sets are small, and comparing symbols is comparing pointers
			if s.own[i].Key == key {
				return s.own[i].Value, true
			}
		}
	}
	for _, p := range s.parents {
		if value, ok := p.find(key, bit); ok {
			return value, true
		}
	}
	return Symbol{}, false
}

// Append appends each label that Lookup would find, each key once, own ones first.
func (s *Set) Append(to []Label) []Label { return s.appendNew(to, len(to)) }

func (s *Set) appendNew(to []Label, from int) []Label {
	if s == nil {
		return to
	}
	known := to[from:]
	for _, l := range s.own {
		if !slices.ContainsFunc(known, func(k Label) bool { return k.Key == l.Key }) {
			to = append(to, l)
		}
	}
	for _, p := range s.parents {
		to = p.appendNew(to, from)
	}
	return to
}
