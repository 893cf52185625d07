package selector

import (
	"slices"
	"strings"
)

// Restriction is a condition on one label of everything that a selector matches. If both Present and Absent are set,
// the selector matches nothing.
type Restriction struct {
	// Present: the label must exist.
	Present bool
	// Absent: the label must not exist.
	Absent bool
	// OneOf, if not nil, lists the values the label may have if it exists: sorted, without duplicates.
	OneOf []string
	// NoneOf lists values the label must not have: sorted, without duplicates. Nil if OneOf is not nil.
	NoneOf []string
}

// Possible reports whether any labels meet r.
func (r Restriction) Possible() bool { return !r.Present || !r.Absent }

// Allows reports whether a label meets r. The value is ignored if the label is not present.
func (r Restriction) Allows(value string, present bool) bool {
	if !present {
		return !r.Present
	}
	if r.Absent {
		return false
	}
	if _, listed := slices.BinarySearch(r.NoneOf, value); listed {
		return false
	}
	_, listed := slices.BinarySearch(r.OneOf, value)
	return r.OneOf == nil || listed
}

// Restrictions are conditions on single labels, by key, that hold for everything s matches. They are never stricter
// than s, and find more than Felix's, because they follow negation through && and ||. Keys that are not in the map are
// not restricted. If s matches nothing, the map may be empty: see Never. Each call computes them anew and takes as long
// as Parse.
func (s *Selector) Restrictions() map[string]Restriction {
	m := map[string]Restriction{}
	root, err := parse(s.text, "")
	if err != nil {
		return m // unreachable: a canonical text parses
	}
	for _, k := range analyse(root, false).keys {
		m[k.key] = k.restriction()
	}
	return m
}

// domain is the set of values a label may have. It is closed under complement and intersection, so it is exact for !,
// && and || on one key.
type domain struct {
	absent bool     // the label may be missing
	rest   bool     // values lists the forbidden values; otherwise the allowed ones
	values []string // sorted, without duplicates
}

func (d domain) anything() bool { return d.absent && d.rest && len(d.values) == 0 }
func (d domain) nothing() bool  { return !d.absent && !d.rest && len(d.values) == 0 }

func (d domain) complement() domain {
	return domain{absent: !d.absent, rest: !d.rest, values: d.values}
}

func (d domain) intersect(e domain) domain {
	if d.rest && !e.rest {
		d, e = e, d
	}
	both := domain{absent: d.absent && e.absent, rest: d.rest && e.rest}
	switch {
	case both.rest:
		both.values = mergeSorted(d.values, e.values, true, true, true)
	case e.rest:
		both.values = mergeSorted(d.values, e.values, true, false, false)
	default:
		both.values = mergeSorted(d.values, e.values, false, true, false)
	}
	return both
}

func (d domain) union(e domain) domain {
	return d.complement().intersect(e.complement()).complement()
}

// mergeSorted returns the values that are in a only, in both, or in b only, as requested.
func mergeSorted(a, b []string, onlyA, both, onlyB bool) []string {
	var out []string
	for len(a) > 0 || len(b) > 0 {
		take, value := onlyA, ""
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			value, a = a[0], a[1:]
		case len(a) == 0 || b[0] < a[0]:
			value, b, take = b[0], b[1:], onlyB
		default:
			value, a, b, take = a[0], a[1:], b[1:], both
		}
		if take {
			out = append(out, value)
		}
	}
	return out
}

func (d domain) restriction() Restriction {
	r := Restriction{Present: !d.absent}
	if d.rest {
		r.NoneOf = d.values
		return r
	}
	r.Absent = len(d.values) == 0
	r.OneOf = d.values
	if r.OneOf == nil {
		r.OneOf = []string{}
	}
	return r
}

// keyDomain is the domain of one key. Lists of keyDomains are sorted by key.
type keyDomain struct {
	key string
	domain
}

func compareKeys(a, b keyDomain) int { return strings.Compare(a.key, b.key) }

// intersectKeys returns all keys of a and b; never is true if a key has no possible value left.
func intersectKeys(a, b []keyDomain) (both []keyDomain, never bool) {
	if len(a) == 0 {
		return b, false
	}
	if len(b) == 0 {
		return a, false
	}
	both = make([]keyDomain, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		var next keyDomain
		switch {
		case len(b) == 0 || len(a) > 0 && compareKeys(a[0], b[0]) < 0:
			next, a = a[0], a[1:]
		case len(a) == 0 || compareKeys(b[0], a[0]) < 0:
			next, b = b[0], b[1:]
		default:
			next = keyDomain{a[0].key, a[0].intersect(b[0].domain)}
			a, b = a[1:], b[1:]
			never = never || next.nothing()
		}
		both = append(both, next)
	}
	return both, never
}

// uniteKeys returns the keys that are in both and that are still restricted.
func uniteKeys(a, b []keyDomain) []keyDomain {
	var out []keyDomain
	for len(a) > 0 && len(b) > 0 {
		switch c := compareKeys(a[0], b[0]); {
		case c < 0:
			a = a[1:]
		case c > 0:
			b = b[1:]
		default:
			if d := a[0].union(b[0].domain); !d.anything() {
				out = append(out, keyDomain{a[0].key, d})
			}
			a, b = a[1:], b[1:]
		}
	}
	return out
}
