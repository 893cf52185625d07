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

// Labels tell the value of a label, or that there is no such label.
type Labels interface {
	Get(key string) (value string, ok bool)
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

// Set is interned labels: of its own, and inherited ones where it has none of its own. Matching a *Set is several times
// faster than matching other Labels. A Set never changes; a nil *Set is no labels.
type Set struct {
	own     []Label // sorted by key; by the Label's texts, so that equal labels make equal sets
	parents []*Set  // the first that has a key wins
}

// NewSet interns labels. Parents are inherited from in their order; nil ones do not count.
func NewSet(labels map[string]string, parents ...*Set) *Set {
	s := &Set{own: make([]Label, 0, len(labels))}
	for k, v := range labels {
		s.own = append(s.own, Label{Intern(k), Intern(v)})
	}
	slices.SortFunc(s.own, func(a, b Label) int { return strings.Compare(a.Key.Value(), b.Key.Value()) })
	return s.Inherit(parents...)
}

// Inherit returns a set with the own labels of s (shared, not copied) and other parents.
func (s *Set) Inherit(parents ...*Set) *Set {
	c := &Set{}
	if s != nil {
		c.own = s.own
	}
	for _, p := range parents {
		if p != nil {
			c.parents = append(c.parents, p)
		}
	}
	return c
}

// Get implements Labels.
func (s *Set) Get(key string) (string, bool) {
	value, ok := s.Lookup(Intern(key))
	if !ok {
		return "", false
	}
	return value.Value(), true
}

// Lookup is Get with symbols.
func (s *Set) Lookup(key Symbol) (Symbol, bool) {
	if s == nil {
		return Symbol{}, false
	}
	for i := range s.own { // a scan: sets are small, and comparing symbols is comparing pointers
		if s.own[i].Key == key {
			return s.own[i].Value, true
		}
	}
	for _, p := range s.parents {
		if value, ok := p.Lookup(key); ok {
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
