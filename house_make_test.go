package contivagent

import (
	"os"
	"regexp"
	"strings"
	"testing"
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
		"test": "\t$(TEST) -short -timeout 10m -p 4 ./...",
		"race": "\t$(RACE) -timeout 30m -shuffle=on -p 4 ./...",
		"lint": "\t$(PLAIN) vet -tags grpcnotrace ./...\n", // the targets above do not vet
	} {
		if !strings.Contains(rules[name].recipe, line) {
			t.Errorf("make %s does not run %q", name, line)
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
	if err != nil || !strings.Contains(string(ci), "\nmake check\n") {
		t.Errorf("CI does not run make check (%v)", err)
	}
}
