package kube

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// suitesPage has the results of foreign suites on the nodes of make e2e-nodes: a table for each suite, under a heading.
const suitesPage = "../../docs/conformance/nodes.md"

// Results of a test, as the page has them.
const (
	passes  = "pass"
	fails   = "fail"
	skips   = "skip"     // by the test itself
	leftOut = "left out" // by make e2e-wide
	notRun  = "–"
)

// outcome is a test's result, and the suite's reason if it is not a pass.
type outcome struct{ result, why string }

// suiteRow is a row of a table.
type suiteRow struct {
	name    string
	results [2]string // on the simulated VPP, on a real one
	cause   string
}

func (r suiteRow) String() string {
	return strings.TrimRight(fmt.Sprintf("| `%s` | %s | %s | %s", r.name, r.results[0], r.results[1], r.cause), " ") + " |"
}

var suiteRowOf = regexp.MustCompile("^\\| `(.+)` \\| ([^|]+) \\| ([^|]+) \\|(.*)\\|$")

// parseRows returns the rows of the table under a heading, and the lines before and behind them.
func parseRows(page, heading string) (before string, rows []suiteRow, behind string, err error) {
	start, rest, found := strings.Cut(page, "\n## "+heading+"\n")
	if !found {
		return "", nil, "", fmt.Errorf("no heading %q", heading)
	}
	before = start + "\n## " + heading + "\n"
	for line := range strings.Lines(rest) {
		m := suiteRowOf.FindStringSubmatch(strings.TrimRight(line, "\n"))
		switch {
		case m != nil && behind == "":
			rows = append(rows, suiteRow{m[1], [2]string{m[2], m[3]}, strings.TrimSpace(m[4])})
		case len(rows) == 0 && behind == "" && !strings.HasPrefix(line, "## "):
			before += line
		default:
			behind += line
		}
	}
	return before, rows, behind, nil
}

// differences compares results with the rows, by the column of a VPP. Tests that did not run do not count.
func differences(rows []suiteRow, column int, got map[string]outcome) (out []string) {
	has := map[string]string{}
	for _, r := range rows {
		has[r.name] = r.results[column]
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		switch have, ok := has[name]; {
		case !ok:
			out = append(out, fmt.Sprintf("%s: %s; the table does not have it: %s", name, got[name].result, got[name].why))
		case have != got[name].result:
			out = append(out, fmt.Sprintf("%s: %s, not %s: %s", name, got[name].result, have, got[name].why))
		}
	}
	return out
}

// merge writes results into the rows. A test that is new gets a row behind the others; a cause that the suite gives is kept if the row has none.
func merge(rows []suiteRow, column int, got map[string]outcome) []suiteRow {
	rows = slices.Clone(rows)
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name].result == notRun {
			continue
		}
		at := slices.IndexFunc(rows, func(r suiteRow) bool { return r.name == name })
		if at < 0 {
			at, rows = len(rows), append(rows, suiteRow{name: name, results: [2]string{notRun, notRun}})
		}
		rows[at].results[column] = got[name].result
		if why := got[name].why; got[name].result == skips && rows[at].cause == "" && !strings.ContainsAny(why, "|\n") {
			rows[at].cause = "the test: " + why
		}
	}
	return rows
}

// asOnPage compares results of a suite with the page; -report writes them to it.
func asOnPage(t *testing.T, heading string, got map[string]outcome) {
	t.Helper()
	column := 0
	if realVPP() != "" {
		column = 1
	}
	page, err := os.ReadFile(suitesPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rows, behind, err := parseRows(string(page), heading)
	if err != nil {
		t.Fatal(err)
	}
	if *writeReport {
		rows = merge(rows, column, got)
		for _, r := range rows {
			before += r.String() + "\n"
		}
		if err := os.WriteFile(suitesPage, []byte(before+behind), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range differences(rows, column, got) {
		t.Error(d)
	}
}

// TestSuitesPage: the page has a table for each suite, only results that exist, and a cause for each that is no pass.
func TestSuitesPage(t *testing.T) {
	page, err := os.ReadFile(suitesPage)
	if err != nil {
		t.Fatal(err)
	}
	for heading, least := range map[string]int{kubernetesSuite: 80, policySuite: 20} {
		_, rows, _, err := parseRows(string(page), heading)
		if err != nil || len(rows) < least {
			t.Errorf("%s: %d rows, want %d or more: %v", heading, len(rows), least, err)
		}
		names := map[string]bool{}
		for _, r := range rows {
			if names[r.name] {
				t.Errorf("%s: %s: two rows", heading, r.name)
			}
			names[r.name] = true
			for _, result := range r.results {
				if !slices.Contains([]string{passes, fails, skips, leftOut, notRun}, result) {
					t.Errorf("%s: %s: %q is no result", heading, r.name, result)
				}
				if result != passes && result != notRun && r.cause == "" {
					t.Errorf("%s: %s: %s, without a cause", heading, r.name, result)
				}
			}
		}
	}
}

// Headings of the page.
const (
	kubernetesSuite = "Kubernetes " + version
	policySuite     = "network-policy-api v0.2.0"
)

// TestSuiteRows: results are compared with a page and written to it; causes stay.
func TestSuiteRows(t *testing.T) {
	const page = "# Suites\n\n## A\n\nText.\n\n| test | sim | VPP | cause |\n|---|---|---|---|\n" +
		"| `[x] one` | pass | – | |\n| `two` | fail | pass | because |\n\nMore.\n\n## B\n\n| test | sim | VPP | cause |\n|---|---|---|---|\n| `one` | fail | fail | other |\n"
	before, rows, behind, err := parseRows(page, "A")
	if err != nil {
		t.Fatal(err)
	}
	want := []suiteRow{{"[x] one", [2]string{passes, notRun}, ""}, {"two", [2]string{fails, passes}, "because"}}
	if diff := cmp.Diff(want, rows, cmp.AllowUnexported(suiteRow{})); diff != "" {
		t.Error(diff)
	}
	if again := before + rows[0].String() + "\n" + rows[1].String() + "\n" + behind; again != page {
		t.Errorf("%q", again)
	}
	got := map[string]outcome{"[x] one": {passes, ""}, "two": {passes, ""}, "three": {skips, "two nodes"}}
	if diff := cmp.Diff([]string{"three: skip; the table does not have it: two nodes", "two: pass, not fail: "}, differences(rows, 0, got)); diff != "" {
		t.Error(diff)
	}
	merged := merge(rows, 0, got)
	if d := differences(merged, 0, got); len(d) > 0 || merged[1].cause != "because" || merged[2].String() != "| `three` | skip | – | the test: two nodes |" {
		t.Error(d, merged)
	}
	const empty = "# Suites\n\n## A\n\n| test | sim | VPP | cause |\n|---|---|---|---|\n\n## B\n\nText.\n\n| `one` | fail | fail | other |\n"
	if before, rows, behind, err := parseRows(empty, "A"); err != nil || len(rows) > 0 || before+behind != empty || !strings.HasPrefix(behind, "## B") {
		t.Errorf("%q %v %q %v", before, rows, behind, err)
	}
	if _, _, _, err := parseRows(page, "C"); err == nil {
		t.Error("a heading that does not exist has rows")
	}
}

// specsOf turns ginkgo's report into results. focus and skip are the expressions by which ginkgo selected tests.
func specsOf(reports []ginkgoReport, focus, skip *regexp.Regexp) map[string]outcome {
	out := map[string]outcome{}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			why, _, _ := strings.Cut(spec.Failure.Message, "\n")
			switch {
			case spec.LeafNodeType != "It" || !focus.MatchString(name):
			case spec.State == "passed":
				out[name] = outcome{result: passes}
			case spec.State == "skipped" && why == "" && skip.MatchString(name):
				out[name] = outcome{result: leftOut}
			case spec.State == "skipped" && why != "":
				out[name] = outcome{skips, why}
			case spec.State == "skipped" || spec.State == "interrupted": // the run was cut off
				out[name] = outcome{notRun, spec.State}
			default:
				out[name] = outcome{fails, spec.State + ": " + spec.Failure.Message}
			}
		}
	}
	return out
}

// ginkgoReport is what counts here of a report of ginkgo.
type ginkgoReport struct{ SpecReports []ginkgoSpec }

type ginkgoSpec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string // "It": a test
	LeafNodeText            string
	State                   string
	Failure                 struct{ Message string }
}

// rootsOf are the results of the tests of network-policy-api, by its output.
func rootsOf(said string) map[string]outcome {
	out := map[string]outcome{}
	for _, m := range regexp.MustCompile(`(?m)^ {4}--- (PASS|FAIL|SKIP): TestConformanceProfiles/([^/\s]+) `).FindAllStringSubmatch(said, -1) {
		out[m[2]] = outcome{result: map[string]string{"PASS": passes, "FAIL": fails, "SKIP": skips}[m[1]]}
	}
	for _, m := range missed(said) {
		root, _, _ := strings.Cut(m.test, "/")
		out[root] = outcome{fails, strings.TrimSpace(out[root].why + " " + m.protocol + ": " + m.text)}
	}
	return out
}

// TestSuiteResults: what is read of the suites' output.
func TestSuiteResults(t *testing.T) {
	var r ginkgoReport
	for _, s := range [][3]string{
		{"passes", "passed"}, {"is [Slow]", "skipped"}, {"needs nodes", "skipped", "three nodes\nat x"}, {"fails", "failed", "no answer"}, {"hangs", "timedout"}, {"is cut off", "skipped"},
	} {
		spec := ginkgoSpec{ContainerHierarchyTexts: []string{"[net]", "S"}, LeafNodeType: "It", LeafNodeText: s[0], State: s[1]}
		spec.Failure.Message = s[2]
		r.SpecReports = append(r.SpecReports, spec)
	}
	got := specsOf([]ginkgoReport{r}, regexp.MustCompile(`\[net\] S`), regexp.MustCompile(`\[Slow\]`))
	want := map[string]outcome{
		"[net] S passes": {passes, ""}, "[net] S is [Slow]": {leftOut, ""}, "[net] S needs nodes": {skips, "three nodes"},
		"[net] S fails": {fails, "failed: no answer"}, "[net] S hangs": {fails, "timedout: "}, "[net] S is cut off": {notRun, "skipped"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
	if got := specsOf([]ginkgoReport{r}, regexp.MustCompile("other"), regexp.MustCompile("other")); len(got) > 0 {
		t.Error(got)
	}
	got = rootsOf("--- FAIL: TestConformanceProfiles (1.0s)\n    --- PASS: TestConformanceProfiles/A (1.00s)\n        --- PASS: TestConformanceProfiles/A/one (0.0s)\n" +
		"    --- FAIL: TestConformanceProfiles/B (1.00s)\n")
	want = map[string]outcome{"A": {passes, ""}, "B": {fails, ":     --- FAIL: TestConformanceProfiles/B (1.00s)"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}
