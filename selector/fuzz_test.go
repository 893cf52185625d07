package selector

import (
	"regexp"
	"strings"
	"testing"
)

// FuzzParse checks that no text makes the parser panic, that the canonical text of an expression means the same, and
// that an error names an offset within the text.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		``, ` all() `, `!(has(a) || !global())`, `a == "b" && !c != 'd'`, `a in {"x", 'y',} || b not in{}`,
		`a starts with "x" && b endswith 'y' && c contains "z"`, `a in {'"', "'"}`, `((a=="b"`, `a == "b`, "not not in {\"\xff\"}",
	} {
		f.Add(text)
	}
	twice := regexp.MustCompile(`!!`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			if e := err.(*SyntaxError); e.Offset < 0 || e.Offset > len(text) {
				t.Fatalf("offset %d of %q", e.Offset, text)
			}
			return
		}
		again, err := Parse(s.String())
		if err != nil {
			t.Fatalf("%q → %q: %v", text, s, err)
		}
		if again.String() != s.String() && !twice.MatchString(s.String()) {
			t.Fatalf("%q → %q → %q", text, s, again)
		}
		if (again.UniqueID() == s.UniqueID()) != (again.String() == s.String()) {
			t.Fatalf("%q: identifiers and texts differ", text)
		}
		for _, m := range []Map{nil, {"a": "b"}, {"a": "x", "b": "y"}, {"c": strings.Repeat("z", 3)}} {
			if s.Matches(m) != again.Matches(m) || s.Matches(m) != s.Matches(interned(m)) {
				t.Fatalf("%q on %v: %t, again %t, symbols %t", text, m, s.Matches(m), again.Matches(m), s.Matches(interned(m)))
			}
		}
	})
}
