package contivagent

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// docs/fuzz.md has each fuzz target once, and counts those that have had too little time.
func TestFuzzTargetsAreListed(t *testing.T) {
	page, err := os.ReadFile("docs/fuzz.md")
	if err != nil {
		t.Fatal(err)
	}
	listed, short := map[string]bool{}, 0
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\d+) s \\|").FindAllStringSubmatch(string(page), -1) {
		if listed[m[1]] {
			t.Errorf("%s has two rows", m[1])
		}
		listed[m[1]] = true
		if seconds, _ := strconv.Atoi(m[2]); seconds < 600 {
			short++
		}
	}
	for _, target := range fuzzTargets(t) {
		if !listed[target] {
			t.Errorf("%s has no row in docs/fuzz.md", target)
		}
		delete(listed, target)
	}
	for target := range listed {
		t.Errorf("docs/fuzz.md: there is no target %s", target)
	}
	if said := strings.Contains(string(page), "\n- "+strconv.Itoa(short)+" targets have had less than 600 s"); said != (short > 0) {
		t.Errorf("docs/fuzz.md: %d targets have had less than 600 s, but its BUGS say otherwise", short)
	}
}

// fuzzTargets returns all of the product, as "folder:Name".
func fuzzTargets(t *testing.T) (out []string) {
	t.Helper()
	for _, f := range tree(t) {
		if !strings.HasSuffix(f.Path, "_test.go") {
			continue
		}
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Fuzz") {
				out = append(out, path.Dir(f.Path)+":"+fn.Name.Name)
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("no targets")
	}
	return out
}
