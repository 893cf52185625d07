package selector

import (
	"errors"
	"strings"
	"testing"
)

func mustParse(t testing.TB, text string) *Selector {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCanonicalText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, `all()`},
		{" \t", `all()`},
		{`all()`, `all()`},
		{` ((all( ) ) )`, `all()`},
		{"global(\t)", `global()`},
		{`has( a )`, `has(a)`},
		{`a=='b'`, `a == "b"`},
		{`a == "'"`, `a == "'"`},
		{`a == '"'`, `a == '"'`},
		{`a == ''`, `a == ""`},
		{"a == 'x\n\xff'", "a == \"x\n\xff\""},
		{`a!="b"`, `a != "b"`},
		{`a contains'b'`, `a contains "b"`},
		{`a startswith "b"`, `a starts with "b"`},
		{"a starts \t with 'b'", `a starts with "b"`},
		{`a endswith"b"`, `a ends with "b"`},
		{`a in{'d',"a" , 'b',"a"}`, `a in {"a", "b", "d"}`},
		{`a in {'"', "'", 'c'}`, `a in {'"', "'", "c"}`},
		{`a notin {"b"}`, `a not in {"b"}`},
		{`a not in {"b",}`, `a not in {"b"}`},
		{`a in {}`, `a in {}`},
		{`in in {"x"}`, `in in {"x"}`},
		{`not in {"x"}`, `not in {"x"}`},
		{`not not in {"x"}`, `not not in {"x"}`},
		{`all == "x"`, `all == "x"`},
		{`has == "x"`, `has == "x"`},
		{`hasty == "x" && allow == "y"`, `(hasty == "x" && allow == "y")`},
		{`a.b/c-d_E9 == "x"`, `a.b/c-d_E9 == "x"`},
		{`!a == "b"`, `!a == "b"`},
		{`!!a == "b"`, `a == "b"`},
		{`! !\t!has(a)`, ``},
		{`!( !has(a))`, `!!has(a)`},
		{`has(a)&&has(b)||has(c)`, `((has(a) && has(b)) || has(c))`},
		{`has(a)||has(b)&&has(c)`, `(has(a) || (has(b) && has(c)))`},
		{`has(a)&&(has(b)||has(c))`, `(has(a) && (has(b) || has(c)))`},
		{`has(a)&&has(b)&&has(c)`, `(has(a) && has(b) && has(c))`},
		{`(has(a)&&has(b))&&has(c)`, `((has(a) && has(b)) && has(c))`},
		{`!(has(a)||!has(b))`, `!(has(a) || !has(b))`},
	} {
		s, err := Parse(c.text)
		if c.want == "" {
			if err == nil {
				t.Errorf("%q: no error", c.text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if s.String() != c.want {
			t.Errorf("%q: got %s, want %s", c.text, s, c.want)
		}
	}
}

// Identifiers are those that Felix v3.31.0 made.
func TestIdentifiers(t *testing.T) {
	for text, want := range map[string]string{
		``:                         `s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug`,
		` (all() )`:                `s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug`,
		`! (has( b)||! has(a ))`:   `s:Iss0uCleLYv1GSv_pNm7hAO58kE9jAx1NKyG3Q`,
		`! (a == "b"&&! c != "d")`: `s:lh3haoY1ikTRkd4UZu0nWSaIBknYLPJLX16d-w`,
	} {
		if got := mustParse(t, text).UniqueID(); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if got, want := All().UniqueID(), mustParse(t, "all()").UniqueID(); got != want {
		t.Errorf("All: got %s, want %s", got, want)
	}
}

func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int
		reason string
	}{
		{`b == b`, 5, "value in quotes"},
		{`b contains b`, 11, "value in quotes"},
		{`b starts with b`, 14, "value in quotes"},
		{`b ends with b`, 12, "value in quotes"},
		{`b starts "x"`, 2, "an operator behind label key \"b\""},
		{`'b1' == b`, 0, "a label key"},
		{`b`, 1, "an operator"},
		{`a b`, 2, "an operator"},
		{`a = "b"`, 2, "an operator"},
		{`a ! "b"`, 2, "an operator"},
		{`!`, 1, "a label key"},
		{`!= "b"`, 1, "a label key"},
		{`foo == "bar" &`, 13, "&&, || or the end"},
		{`foo == "bar" |`, 13, "&&, || or the end"},
		{`foo == "bar" has(a)`, 13, "&&, || or the end"},
		{`has(foo) &&`, 11, "a label key"},
		{`foo != ||`, 7, "value in quotes"},
		{`foo in {"", ||`, 12, "}"},
		{`foo in {"" ""}`, 11, "}"},
		{`foo in {,}`, 8, "}"},
		{`foo in ""`, 7, "{"},
		{`foo not in "x"`, 11, "{"},
		{`foo innings {"x"}`, 6, "{"},
		{`foo == "FOO'`, 7, "missing closing quote"},
		{`foo in {'a`, 8, "missing closing quote"},
		{`(`, 1, "a label key"},
		{`()`, 1, "a label key"},
		{`)`, 0, "a label key"},
		{`(a == "foo"`, 11, ")"},
		{`a == "foo")`, 10, "&&, || or the end"},
		{`has()`, 4, "a label key"},
		{`has(a b)`, 6, ")"},
		{`has (a)`, 4, "an operator"},
		{`all(x)`, 4, ")"},
		{`%`, 0, "a label key"},
		{"has(a)\n", 6, "&&, || or the end"},
		{"\nhas(a)", 0, "a label key"},
		{`é == "x"`, 0, "a label key"},
		{strings.Repeat("k", MaxKeyLength+1) + ` == "x"`, 0, "longer than 512"},
		{strings.Repeat("(", MaxDepth+1) + "all()" + strings.Repeat(")", MaxDepth+1), MaxDepth + 1, "deeper than 200"},
	} {
		s, err := Parse(c.text)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%q: got %v and error %v", c.text, s, err)
			continue
		}
		if syntax.Offset != c.offset || !strings.Contains(syntax.Reason, c.reason) || syntax.Text != c.text {
			t.Errorf("%q: got %v, want offset %d, %s", c.text, err, c.offset, c.reason)
		}
		if len(err.Error()) > 1100 {
			t.Errorf("%.20q…: error of %d bytes", c.text, len(err.Error()))
		}
	}
}

func TestTextsAtTheLimitsParse(t *testing.T) {
	mustParse(t, strings.Repeat("k", MaxKeyLength)+` == "x"`)
	mustParse(t, strings.Repeat("(", MaxDepth)+"all()"+strings.Repeat(")", MaxDepth))
	mustParse(t, strings.Repeat("!", 1e6)+"all()")
	mustParse(t, strings.Repeat("(has(a)) && ", MaxDepth+1)+"all()") // many operands, but no depth
	// Each level of this text has two levels in the canonical text.
	deep := func(levels int) string {
		return strings.Repeat("(has(a) || has(b) && ", levels) + "all()" + strings.Repeat(")", levels)
	}
	mustParse(t, mustParse(t, deep(MaxDepth/2)).String())
	if s, err := Parse(deep(MaxDepth/2 + 1)); err == nil {
		t.Errorf("no error, canonical text %s", s)
	}
}

func TestPrefix(t *testing.T) {
	got, err := ParsePrefixed(`!(!(k == 'v' && has(t) || all()) && (a in {'b'}) && c != "k")`, "pcns.")
	if err != nil {
		t.Fatal(err)
	}
	want := `!(!((pcns.k == "v" && has(pcns.t)) || all()) && pcns.a in {"b"} && pcns.c != "k")`
	if got.String() != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, c := range [][2]string{{`a == "b"`, "p "}, {`a == "b"`, "é"}, {strings.Repeat("k", MaxKeyLength) + ` == "x"`, "p"}} {
		if s, err := ParsePrefixed(c[0], c[1]); err == nil {
			t.Errorf("%.20s with prefix %q: %.30s, no error", c[0], c[1], s)
		}
	}
}

func TestMatches(t *testing.T) {
	many := "a in {'00','01','02','03','04','05','06','07','08','09','10','11','12','13','14','15','16','17','18'}"
	for _, c := range []struct {
		text    string
		yes, no []Map
	}{
		{``, []Map{nil, {"a": "b"}}, nil},
		{`global()`, []Map{nil, {"a": "b"}}, nil},
		{`!all()`, nil, []Map{nil, {"a": "b"}}},
		{`a == "b"`, []Map{{"a": "b"}, {"a": "b", "c": "d"}}, []Map{nil, {"a": "c"}, {"b": "b"}, {"a": ""}}},
		{`a == ""`, []Map{{"a": ""}}, []Map{nil, {"a": "x"}}},
		{`a != "b"`, []Map{nil, {"a": "c"}, {"a": ""}}, []Map{{"a": "b"}}},
		{`!a == "b"`, []Map{nil, {"a": "c"}}, []Map{{"a": "b"}}},
		{`!a != "b"`, []Map{{"a": "b"}}, []Map{nil, {"a": "c"}}},
		{`a in {"x","y"}`, []Map{{"a": "x"}, {"a": "y"}}, []Map{nil, {"a": "z"}, {"b": "x"}}},
		{`a in {}`, nil, []Map{nil, {"a": "z"}}},
		{`a not in {}`, []Map{nil, {"a": "z"}}, nil},
		{`a not in {"x","y"}`, []Map{nil, {"a": "z"}}, []Map{{"a": "x"}, {"a": "y"}}},
		{many, []Map{{"a": "00"}, {"a": "09"}, {"a": "18"}}, []Map{nil, {"a": "19"}, {"a": ""}}},
		{`a contains "b"`, []Map{{"a": "abc"}, {"a": "b"}}, []Map{nil, {"a": "ac"}, {"b": "b"}}},
		{`a contains ""`, []Map{{"a": ""}}, []Map{nil}},
		{`a starts with "ab"`, []Map{{"a": "abc"}, {"a": "ab"}}, []Map{nil, {"a": "cab"}, {"a": "a"}}},
		{`a ends with "bc"`, []Map{{"a": "abc"}, {"a": "bc"}}, []Map{nil, {"a": "bca"}, {"a": "c"}}},
		{`has(a)`, []Map{{"a": ""}}, []Map{nil, {"b": "a"}}},
		{`!has(a)`, []Map{nil, {"b": "a"}}, []Map{{"a": ""}}},
		{`has(a) && has(b)`, []Map{{"a": "", "b": ""}}, []Map{nil, {"a": ""}, {"b": ""}}},
		{`has(a) || has(b)`, []Map{{"a": ""}, {"b": ""}, {"a": "", "b": ""}}, []Map{nil, {"c": ""}}},
		{`has(a) || has(b) && has(c)`, []Map{{"a": ""}, {"b": "", "c": ""}}, []Map{{"b": ""}, {"c": ""}}},
		{`!(has(a) || !has(b))`, []Map{{"b": ""}}, []Map{nil, {"a": "", "b": ""}, {"a": ""}}},
		{`!(!has(a) || a == "x")`, []Map{{"a": "y"}}, []Map{nil, {"a": "x"}}},
	} {
		s := mustParse(t, c.text)
		for _, l := range c.yes {
			check(t, s, l, true)
		}
		for _, l := range c.no {
			check(t, s, l, false)
		}
	}
}

// check compares the result for every form of labels.
func check(t *testing.T, s *Selector, labels Map, want bool) {
	t.Helper()
	forms := map[string]Labels{
		"map":     labels,
		"symbols": interned(labels),
	}
	if len(labels) == 0 {
		forms["nil"] = nil
	}
	for form, l := range forms {
		if got := s.Matches(l); got != want {
			t.Errorf("%s matches %v (%s): got %t", s, labels, form, got)
		}
	}
}

// pairs is a Symbols as the calculation graph has it: few labels, in a list.
type pairs []pair

type pair struct{ key, value Symbol }

func interned(labels Map) (out pairs) {
	for k, v := range labels {
		out = append(out, pair{Intern(k), Intern(v)})
	}
	return out
}

func (p pairs) Get(key string) (string, bool) {
	value, ok := p.Lookup(Intern(key))
	if !ok {
		return "", false
	}
	return value.Value(), true
}

func (p pairs) Lookup(key Symbol) (Symbol, bool) {
	for _, l := range p {
		if l.key == key {
			return l.value, true
		}
	}
	return Symbol{}, false
}

func TestZeroSelectorMatchesNothing(t *testing.T) {
	var s Selector
	check(t, &s, Map{"a": "b"}, false)
	check(t, &s, nil, false)
}
