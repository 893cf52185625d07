package contivagent

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/shape"
)

// goroutineCalls are the names of methods and functions that start goroutines: of sync.WaitGroup and errgroup, of testing, and of time.
var goroutineCalls = []string{"Go", "Parallel", "AfterFunc", "RunParallel"}

// startsGoroutine says by which line a file starts a goroutine, or "".
func startsGoroutine(s shape.File) (line string) {
	ast.Inspect(s.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			line = s.Path + ": go"
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(goroutineCalls, f.Sel.Name) {
				line = s.Path + ": " + f.Sel.Name
			}
		}
		return line == ""
	})
	return line
}

// TestPackagesWithoutTheRaceDetector: make race leaves packages out. Neither their tests nor anything of ours that they import starts a goroutine.
func TestPackagesWithoutTheRaceDetector(t *testing.T) {
	_, text := makeRules(t)
	m := regexp.MustCompile(`(?m)^ALONE := (.*)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatal("the Makefile has no ALONE")
	}
	rooms := map[string][]shape.File{}
	for _, s := range tree(t) {
		rooms[s.Dir()] = append(rooms[s.Dir()], s)
	}
	for _, pattern := range strings.Fields(m[1]) {
		prefix, all := strings.CutSuffix(strings.TrimPrefix(pattern, "./"), "/...")
		found := 0
		for dir := range rooms {
			if dir == prefix || all && strings.HasPrefix(dir, prefix+"/") {
				found++
				for _, line := range goroutines(rooms, dir) {
					t.Errorf("make race leaves %s out, but %s", dir, line)
				}
			}
		}
		if found == 0 {
			t.Errorf("ALONE: %s is no package", pattern)
		}
	}
	if got := goroutines(rooms, "agent"); len(got) == 0 {
		t.Error("nothing found in agent, which has goroutines")
	}
}

// goroutines returns where the tests of a package, and the packages of ours that they import, start goroutines.
func goroutines(rooms map[string][]shape.File, dir string) (out []string) {
	seen, next := map[string]bool{}, []string{dir}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		for _, s := range rooms[at] {
			if s.IsTest() && at != dir {
				continue
			}
			if line := startsGoroutine(s); line != "" {
				out = append(out, line)
			}
			for _, imp := range imports(s) {
				if to, ours := strings.CutPrefix(imp, module); ours && !seen[to] {
					seen[to] = true
					next = append(next, to)
				}
			}
		}
	}
	return out
}
