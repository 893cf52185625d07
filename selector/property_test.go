package selector

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// expr is an expression with its texts and an independent evaluation.
type expr struct {
	text  string
	means func(Map) bool
}

var (
	keys   = []string{"a", "b", "c"}
	values = []string{"", "x", "xy", "yx"}
)

func exprs(depth int) *rapid.Generator[expr] {
	return rapid.Custom(func(t *rapid.T) expr {
		if depth == 0 || rapid.IntRange(0, 2).Draw(t, "leaf") == 0 {
			return leaf(t)
		}
		kind := rapid.IntRange(0, 4).Draw(t, "kind")
		if kind == 0 {
			kid := exprs(depth-1).Draw(t, "kid")
			return expr{"! (" + kid.text + ")", func(l Map) bool { return !kid.means(l) }}
		}
		kids := rapid.SliceOfN(exprs(depth-1), 1, 4).Draw(t, "kids")
		glue, all := " && ", true
		if kind > 2 {
			glue, all = " || ", false
		}
		var texts []string
		for _, kid := range kids {
			texts = append(texts, "("+kid.text+")")
		}
		return expr{strings.Join(texts, glue), func(l Map) bool {
			for _, kid := range kids {
				if kid.means(l) != all {
					return !all
				}
			}
			return all
		}}
	})
}

func leaf(t *rapid.T) expr {
	kind := rapid.SampledFrom([]int{0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 5, 6, 7, 8, 9}).Draw(t, "kind")
	key := rapid.SampledFrom(keys).Draw(t, "key")
	value := rapid.SampledFrom(values).Draw(t, "value")
	set := rapid.SliceOfN(rapid.SampledFrom(values), 0, 4).Draw(t, "set")
	q := func(op string) string { return fmt.Sprintf("%s %s '%s'", key, op, value) }
	quoted := "{" + strings.Join(quoteAll(set), ",") + "}"
	if len(set) == 0 {
		quoted = "{}"
	}
	is := func(f func(v string, ok bool) bool) func(Map) bool {
		return func(l Map) bool { v, ok := l[key]; return f(v, ok) }
	}
	switch kind {
	case 0:
		return expr{"all()", func(Map) bool { return true }}
	case 1:
		return expr{"global()", func(Map) bool { return true }}
	case 2:
		return expr{"has(" + key + ")", is(func(_ string, ok bool) bool { return ok })}
	case 3:
		return expr{q("=="), is(func(v string, ok bool) bool { return ok && v == value })}
	case 4:
		return expr{q("!="), is(func(v string, ok bool) bool { return !ok || v != value })}
	case 5:
		return expr{key + " in " + quoted, is(func(v string, ok bool) bool { return ok && slices.Contains(set, v) })}
	case 6:
		return expr{key + " not in " + quoted, is(func(v string, ok bool) bool { return !ok || !slices.Contains(set, v) })}
	case 7:
		return expr{q("contains"), is(func(v string, ok bool) bool { return ok && strings.Contains(v, value) })}
	case 8:
		return expr{q("starts with"), is(func(v string, ok bool) bool { return ok && strings.HasPrefix(v, value) })}
	default:
		return expr{q("ends with"), is(func(v string, ok bool) bool { return ok && strings.HasSuffix(v, value) })}
	}
}

func quoteAll(values []string) []string {
	var out []string
	for _, v := range values {
		out = append(out, `"`+v+`"`)
	}
	return out
}

// everyMap returns every set of labels over the keys, with the values of expressions and one value of none.
func everyMap() []Map {
	out := []Map{{}}
	for _, key := range keys {
		for _, m := range slices.Clone(out) {
			for _, v := range append([]string{"other"}, values...) {
				n := Map{key: v}
				for k, v := range m {
					n[k] = v
				}
				out = append(out, n)
			}
		}
	}
	return out
}

// TestCompiledFormMatchesDirectEvaluation compares the compiled form with a direct evaluation of random expressions, on every set of labels: for
// each form of labels, for the canonical text parsed again, and for restrictions and anchors.
func TestCompiledFormMatchesDirectEvaluation(t *testing.T) {
	maps := everyMap()
	rapid.Check(t, func(t *rapid.T) {
		for _, e := range rapid.SliceOfN(exprs(4), 1, 20).Draw(t, "exprs") {
			checkMeaning(t, e, maps)
		}
	})
}

func checkMeaning(t *rapid.T, e expr, maps []Map) {
	s, err := Parse(e.text)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(s.String())
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	restrictions, some := s.Restrictions(), false
	for _, m := range maps {
		want := e.means(m)
		some = some || want
		symbols := interned(m)
		if s.Matches(m) != want || s.Matches(symbols) != want || again.Matches(m) != want {
			t.Fatalf("%s on %v: map %t, symbols %t, again %t, want %t", s, m, s.Matches(m), s.Matches(symbols), again.Matches(m), want)
		}
		if want {
			holds(t, s, restrictions, m)
		}
	}
	if s.Never() && some {
		t.Fatalf("%s: matches something", s)
	}
}

func holds(t *rapid.T, s *Selector, restrictions map[string]Restriction, m Map) {
	for key, r := range restrictions {
		if v, ok := m[key]; !r.Allows(v, ok) || !r.Possible() {
			t.Fatalf("%s matches %v, but restricts %s to %+v", s, m, key, r)
		}
	}
	var terms []Term
	for _, l := range interned(m) {
		terms = append(terms, Term{Key: l.key, Value: l.value}, Term{Key: l.key})
	}
	for _, list := range s.Anchors() {
		if !slices.ContainsFunc(list, func(x Term) bool { return slices.Contains(terms, x) }) {
			t.Fatalf("%s matches %v, which has no term of %v", s, m, list)
		}
	}
}

// Restrictions are exact for expressions over one key without tests of parts of values.
func TestRestrictionsOfOneKeyAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := exprs(3).Filter(func(e expr) bool {
			return !strings.Contains(e.text, "with") && !strings.Contains(e.text, "contains")
		}).Draw(t, "expr")
		text := strings.NewReplacer("b ", "a ", "c ", "a ", "(b)", "(a)", "(c)", "(a)").Replace(e.text)
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range everyMap() {
			v, ok := m["a"]
			r := s.Restrictions()["a"]
			if got := r.Allows(v, ok) && !s.Never(); got != s.Matches(m) {
				t.Fatalf("%s on %v: restriction %+v says %t", s, m, r, got)
			}
		}
	})
}
