package contivagent

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// vppTest is a test that starts a VPP: what it does, or what docs/testing.md says of it.
type vppTest struct {
	sim   bool   // the simulated VPP serves it, too
	quick string // make sim-test runs it: "yes", or which part; "": not
	why   string // the simulated VPP does not serve it
}

// TestVPPTestsAreListed holds the tables of docs/testing.md against the tests that start a VPP, and against `make sim-test`.
func TestVPPTestsAreListed(t *testing.T) {
	page, err := os.ReadFile("docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	skipped := simSkips(t)
	for _, dir := range []string{"test/realvpp", "vppagent", "sim", "test/bench"} {
		_, section, found := strings.Cut(string(page), "\n## "+dir+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		listed := vppRows(section)
		tests := vppTests(t, dir)
		if !found || len(tests) == 0 {
			t.Errorf("%s: a section %t, %d tests that start a VPP", dir, found, len(tests))
		}
		for name, does := range tests {
			says, ok := listed[name]
			delete(listed, name)
			if !ok {
				t.Errorf("%s: %s has no row in docs/testing.md", dir, name)
				continue
			}
			if says.sim != does.sim || does.why != "" && says.why != does.why {
				t.Errorf("%s: %s is %+v; docs/testing.md says %+v", dir, name, does, says)
			}
			quick := does.sim && !slices.Contains(skipped, name+"$$")
			part := slices.ContainsFunc(skipped, func(s string) bool { return strings.HasPrefix(s, name+"$$/") })
			if (says.quick != "") != quick || part && says.quick == "yes" {
				t.Errorf("%s: %s: docs/testing.md says of `make sim-test` %q; it runs the test: %t, a part alone: %t", dir, name, says.quick, quick, part)
			}
		}
		namesTests(t, dir, section)
		if len(listed) > 0 {
			t.Errorf("%s: docs/testing.md lists tests that start no VPP: %q", dir, slices.Sorted(maps.Keys(listed)))
		}
	}
}

// namesTests fails unless the tests exist that a table names in its last column.
func namesTests(t *testing.T, dir, section string) {
	t.Helper()
	exist := map[string]bool{}
	for _, s := range tree(t) {
		for _, d := range s.AST.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.Dir() == dir {
				exist[f.Name.Name] = true
			}
		}
	}
	for name, row := range vppRows(section) {
		for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row.why, -1) {
			if !exist[m[1]] {
				t.Errorf("docs/testing.md names %s beside %s, and %s does not have it", m[1], name, dir)
			}
		}
	}
}

// simSkips are the tests that `make sim-test` leaves out, and parts of tests: NAME$$/PART.
func simSkips(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^SIM_SKIP = (.*)$`).FindStringSubmatch(string(text))
	pods, others := "-run '^$(SIM_PODS)' -skip '$(SIM_SKIP)' ./test/realvpp/", "-run '^TestVPP' -skip '$(SIM_SKIP)|^$(SIM_PODS)' ./test/realvpp/"
	if m == nil || !strings.Contains(string(text), pods) || !strings.Contains(string(text), others) {
		t.Fatal("make sim-test does not run all tests of test/realvpp but those of SIM_SKIP")
	}
	return strings.Split(m[1], "|")
}

var vppRow = regexp.MustCompile("(?m)^\\| `(Test\\w+)` \\| (yes|no) \\|([^|]*)\\|([^|]*)\\|$")

func vppRows(section string) map[string]vppTest {
	out := map[string]vppTest{}
	for _, m := range vppRow.FindAllStringSubmatch(section, -1) {
		out[m[1]] = vppTest{m[2] == "yes", strings.TrimSpace(m[3]), strings.TrimSpace(m[4])}
	}
	return out
}

// vppTests are the tests of a folder that call theVPP or realVPP. All of test/realvpp that are named TestVPP… must.
func vppTests(t *testing.T, dir string) map[string]vppTest {
	t.Helper()
	out := map[string]vppTest{}
	for _, s := range tree(t) {
		if s.Dir() != dir || !s.IsTest() {
			continue
		}
		for _, d := range s.AST.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			if test, starts := startsVPP(f.Body); starts {
				out[f.Name.Name] = test
			} else if dir == "test/realvpp" && strings.HasPrefix(f.Name.Name, "TestVPP") {
				t.Errorf("%s calls neither theVPP nor realVPP itself", f.Name.Name)
			}
		}
	}
	return out
}

// startsVPP looks for the call that says which VPP a test needs. realVPP may have a reason.
func startsVPP(body *ast.BlockStmt) (test vppTest, starts bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, ok := call.Fun.(*ast.Ident)
		if !ok || name.Name != "theVPP" && name.Name != "realVPP" {
			return true
		}
		if starts = true; name.Name == "theVPP" {
			test.sim = true
		} else if len(call.Args) == 2 {
			if why, ok := call.Args[1].(*ast.BasicLit); ok && why.Kind == token.STRING {
				test.why, _ = strconv.Unquote(why.Value) // the file has been parsed
			}
		}
		return true
	})
	if test.why != "" {
		test.sim = false
	}
	return test, starts
}
