package selector

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRestrictions(t *testing.T) {
	const (
		present = "present"
		never   = "never"
	)
	for _, c := range []struct{ text, want string }{
		{``, ``},
		{`global()`, ``},
		{`!all()`, never},
		{`a == 'v'`, `a present in [v]`},
		{`a in {'w','v'}`, `a present in [v w]`},
		{`a in {}`, never},
		{`a not in {}`, ``},
		{`a != 'v'`, `a not in [v]`},
		{`!(a != 'v')`, `a present in [v]`},
		{`!(a == 'v')`, `a not in [v]`},
		{`!(a not in {'v','w'})`, `a present in [v w]`},
		{`has(a)`, `a present`},
		{`!has(a)`, `a absent`},
		{`!(!has(a))`, `a present`},
		{`a contains 'v'`, `a present`},
		{`a starts with 'v'`, `a present`},
		{`a ends with 'v'`, `a present`},
		{`!(a contains 'v')`, ``},
		// &&
		{`a == 'v' && a == 'v'`, `a present in [v]`},
		{`a == 'v' && a == 'w'`, never},
		{`a == 'v' && has(a) && all()`, `a present in [v]`},
		{`a in {'u','v'} && a in {'v','w'}`, `a present in [v]`},
		{`a in {'u','v'} && a != 'u'`, `a present in [v]`},
		{`a != 'u' && a in {'u','v'}`, `a present in [v]`},
		{`a != 'u' && a != 'v'`, `a not in [u v]`},
		{`has(a) && a != 'u'`, `a present not in [u]`},
		{`has(a) && !has(a)`, never},
		{`!has(a) && a != 'u'`, `a absent`},
		{`!(!has(a) || has(b))`, `a present, b absent`},
		{`b == 'w' && a == 'v'`, `a present in [v], b present in [w]`},
		// ||
		{`a == 'v' || a == 'w'`, `a present in [v w]`},
		{`has(a) || a == 'w'`, `a present`},
		{`a == 'v' || !has(a)`, `a in [v]`},
		{`has(a) || !has(a)`, ``},
		{`a != 'v' || a != 'w'`, ``},
		{`a not in {'u','v'} || a not in {'v','w'}`, `a not in [v]`},
		{`a not in {'u','v'} || a == 'u'`, `a not in [v]`},
		{`a == 'v' || b == 'w'`, ``},
		{`a == 'v' || all()`, ``},
		{`a == 'v' || !all()`, `a present in [v]`},
		{`a == 'v' || has(b) && has(a)`, `a present`},
		{`!(a == 'v' && b == 'w')`, ``},
		{`!(a != 'v' && a != 'w')`, `a present in [v w]`},
		{`(a == 'v' && b == 'w') || (a == 'x' && c == 'y')`, `a present in [v x]`},
	} {
		s := mustParse(t, c.text)
		if (c.want == never) != s.Never() {
			t.Errorf("%s: Never is %t", c.text, s.Never())
		}
		if c.want == never {
			c.want = ``
		}
		if got := describe(s.Restrictions()); got != c.want {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
		if c.text == `` {
			continue // not an operand
		}
		if got := describe(mustParse(t, "all() && ("+c.text+")").Restrictions()); got != c.want {
			t.Errorf("all() && (%s): got %s, want %s", c.text, got, c.want)
		}
	}
}

func describe(restrictions map[string]Restriction) string {
	var out []string
	for key, r := range restrictions {
		text := key
		if r.Present {
			text += " present"
		}
		switch {
		case r.Absent:
			text += " absent"
		case r.OneOf != nil:
			text += fmt.Sprint(" in ", r.OneOf)
		}
		if r.NoneOf != nil {
			text += fmt.Sprint(" not in ", r.NoneOf)
		}
		out = append(out, text)
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

func TestAnchors(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{``, nil},
		{`!has(a)`, nil},
		{`a != 'v'`, nil},
		{`!all()`, []string{``}},
		{`has(a)`, []string{`a`}},
		{`a == ''`, []string{`a=`}},
		{`a in {'v','w'}`, []string{`a=v a=w`}},
		{`a == 'v' && b == 'w' && !has(c)`, []string{`a=v`, `b=w`}},
		{`has(a) && a == 'v'`, []string{`a=v`}},
		{`has(a) || a == 'v'`, []string{`a`}},
		{`a == 'v' || b == 'w'`, []string{`a=v b=w`}},
		{`a == 'v' || b == 'w' || a == 'x'`, []string{`a=v a=x b=w`}},
		{`a == 'v' || b == 'w' || has(c)`, []string{`a=v b=w c`}},
		{`a == 'v' || b == 'w' || has(a)`, []string{`a b=w`}},
		{`a == 'v' || !has(b)`, nil},
		{`(a == 'v' && b == 'w') || c == 'x'`, []string{`a=v c=x`, `b=w c=x`}},
		{`(a == 'v' && b == 'w') || (a == 'x' && c == 'y')`, []string{`a=v a=x`, `a=v c=y`, `a=x b=w`, `b=w c=y`}},
		{`!(a != 'v' && b != 'w')`, []string{`a=v b=w`}},
		{`(a == 'v' || b == 'w') && has(c)`, []string{`c`, `a=v b=w`}},
		{`(a == 'v' || b == 'w') || (!has(a) && has(a))`, []string{`a=v b=w`}},
	} {
		var got []string
		for _, list := range mustParse(t, c.text).Anchors() {
			var terms []string
			for _, term := range list {
				text := term.Key.Value()
				if term.Value != (Symbol{}) {
					text += "=" + term.Value.Value()
				}
				terms = append(terms, text)
			}
			got = append(got, strings.Join(terms, " "))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.text, diff)
		}
	}
}

// Distributing || over && must not explode, and no selector may take time out of proportion to its text.
func TestAnchorsStayFew(t *testing.T) {
	var pairs, values []string
	for i := range 2000 {
		pairs = append(pairs, fmt.Sprintf("(k%d == 'x' && l%d in {'y','z'})", i, i))
		values = append(values, fmt.Sprintf("k == 'v%d'", i))
	}
	s := mustParse(t, strings.Join(pairs, "||"))
	if n := len(s.Anchors()); n > maxAnchors {
		t.Errorf("%d lists", n)
	}
	nested := strings.Repeat("(", MaxDepth-5) + strings.Join(pairs[:200], "||") + " && has(z)"
	for i := range MaxDepth - 5 {
		nested += fmt.Sprintf(") || a%d == 'x'", i)
	}
	for _, list := range mustParse(t, nested).Anchors() {
		if len(list) > maxWide {
			t.Errorf("list of %d terms", len(list))
		}
	}
	if got := mustParse(t, strings.Join(values, "||")).Anchors(); len(got) != 1 || len(got[0]) != len(values) {
		t.Errorf("one key, %d values: %d lists", len(values), len(got))
	}
}
