package contivagent

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/shape"
)

// makeRule is a target of the Makefile.
type makeRule struct {
	needs  []string
	recipe string
}

// makeRules returns the targets of the Makefile, and its text.
func makeRules(t *testing.T) (map[string]makeRule, string) {
	t.Helper()
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]makeRule{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):([^=#\n]*)(?:#.*)?\n((?:\t.*\n)*)`).FindAllStringSubmatch(string(text), -1) {
		rules[m[1]] = makeRule{strings.Fields(m[2]), m[3]}
	}
	return rules, string(text)
}

// TestMakeCheckHasEveryPart: make test is the quick part, and make check has the race detector, all cases and each package as well.
func TestMakeCheckHasEveryPart(t *testing.T) {
	rules, text := makeRules(t)
	if got := strings.Join(rules["check"].needs, " "); got != "lint vet-beside test race wide oracle" {
		t.Errorf("make check is %q", got)
	}
	for name, value := range map[string]string{
		"TEST": "$(PLAIN) test -tags grpcnotrace -vet=off",
		"RACE": "CGO_ENABLED=1 $(GO) test -race -vet=off",
	} {
		if !regexp.MustCompile(`(?m)^` + name + `\s*:= ` + regexp.QuoteMeta(value) + `$`).MatchString(text) {
			t.Errorf("%s is not %q", name, value)
		}
	}
	for name, line := range map[string]string{
		"test": "$(TEST) -short -timeout 10m -p 4 ./...",
		"race": "\tCGO_ENABLED=1 GO=$(GO) tools/race.sh -vet=off -timeout 30m -shuffle=on -p 4 $$($(GO) run ./test/shape/goroutines .)\n",
		"lint": "\t$(PLAIN) vet -tags grpcnotrace ./...\n", // the targets above do not vet
	} {
		if !strings.Contains(rules[name].recipe, line) {
			t.Errorf("make %s does not run %q", name, line)
		}
	}
	raced := shape.WithGoroutines(tree(t))
	for dir, want := range map[string]bool{"agent": true, "parallel": true, "vppagent": true, "renderer/acl": false, "calc": false} {
		if slices.Contains(raced, dir) != want {
			t.Errorf("make race has %s: %t, want %t", dir, !want, want)
		}
	}
	wide := rules["wide"].recipe
	packages := regexp.MustCompile(`\./[a-z0-9/-]+`).FindAllString(wide, -1)
	if len(packages) < 10 || strings.Contains(wide, "-short") || strings.Contains(wide, "RACE") {
		t.Errorf("make wide runs only %q, or not all of their cases", packages)
	}
	for _, dir := range packages {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("make wide: %v", err)
		}
	}
	ci, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	runs := strings.Fields(strings.Join(regexp.MustCompile(`(?m)(?:^ *|then )make (.*)$`).FindAllString(string(ci), -1), " "))
	for _, part := range rules["check"].needs {
		if !slices.ContainsFunc(runs, func(word string) bool { return strings.TrimRight(word, ";") == part }) {
			t.Errorf("CI does not run make %s, a part of make check", part)
		}
	}
}

// TestGoCommandsShareTheirFlags: a go command with other flags compiles every package again. Those of a debugger's build are other ones.
func TestGoCommandsShareTheirFlags(t *testing.T) {
	const tables = "-gcflags=all=-dwarf=false"
	for _, c := range []struct{ flags, argument, want string }{
		{"-v", "LINK=-w", tables + " -v\n"},
		{tables + " -v", "LINK=-w", tables + " -v\n"}, // make within make
		{"-v", "LINK=", "-v\n"},
	} {
		cmd := exec.Command("make", "-s", "goflags", c.argument)
		cmd.Env = append(os.Environ(), "GOFLAGS="+c.flags, "MAKEFLAGS=", "MAKELEVEL=0")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != c.want {
			t.Errorf("GOFLAGS=%q make goflags %s: %q (%v), want %q", c.flags, c.argument, out, err, c.want)
		}
	}
	cmd := exec.Command("make", "-n", "docs-test") // in a separate module
	cmd.Env = append(os.Environ(), "GOFLAGS=", "MAKEFLAGS=", "MAKELEVEL=0")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), tables) {
		t.Errorf("make docs-test: %s (%v), without %s", out, err, tables)
	}
	set, kept := regexp.MustCompile(`GOFLAGS=.*`), regexp.MustCompile(`^GOFLAGS=("\$\(GOFLAGS\) |"\$\{GOFLAGS:-\} |" ?\+ ?os\.Getenv\("GOFLAGS"\)|"\$\(make |\$\(make )`)
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == ".git" || path == "bin" || path == "release"): // a release has no flags of the machine
			return filepath.SkipDir
		case d.IsDir() || path == "house_make_test.go" || path != "Makefile" && path != ".ci/run" && filepath.Ext(path) != ".go" && filepath.Ext(path) != ".sh":
			return nil
		}
		text, err := os.ReadFile(path)
		for _, line := range set.FindAllString(string(text), -1) {
			if !kept.MatchString(line) {
				t.Errorf("%s: %s: does not keep the flags of its caller", path, line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if stack := string(debug.Stack()); !strings.Contains(stack, "/house_make_test.go:") {
		t.Errorf("a stack trace has no line:\n%s", stack)
	}
}
