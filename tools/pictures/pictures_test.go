package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

const root = "../.."

// expect fails if a committed file is not what its source makes.
func expect(t *testing.T, path string, want []byte, remedy string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what its source makes: %s", path, remedy)
	}
}

// TestDrawings: each drawing of characters has its SVG.
func TestDrawings(t *testing.T) {
	paths, err := filepath.Glob(root + "/docs/pictures/*.drawing")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no drawings: %v", err)
	}
	for _, path := range paths {
		svg, err := drawing(path)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, replaceExt(path, ".svg"), svg, "make pictures")
	}
}

// TestBenchmarkPage: the page and its plots have the figures of the records that the page names.
func TestBenchmarkPage(t *testing.T) {
	t.Chdir(root)
	page, err := os.ReadFile("docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	var records []string
	for _, m := range regexp.MustCompile(`(?m)^\| \[[^]]*\]\(\.\./(bench/results/[^)]*)\)`).FindAllSubmatch(page, -1) {
		records = append(records, string(m[1]))
	}
	files, err := benchmarks("docs/benchmarks.md", records)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 5 {
		t.Fatalf("only %d files", len(files))
	}
	for path, want := range files {
		expect(t, path, want, "make bench-peers PAGES='...'")
	}
}

// TestSession: the commands of the README's terminal session print what it shows. make pictures-test builds the agent that they need.
func TestSession(t *testing.T) {
	t.Chdir(root)
	bin, err := filepath.Abs("bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(bin, "contiv-agent")); err != nil {
		t.Fatalf("make build makes it: %v", err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	text, err := transcript("docs/pictures/session.sh")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "docs/pictures/session.txt", []byte(text), "make pictures")
	expect(t, "docs/pictures/session.svg", terminal(text), "make pictures")
}

// TestMedian: of several runs the page has the median; other benchmarks and units do not count.
func TestMedian(t *testing.T) {
	rs := readRecords("BenchmarkA/x=1-2  \t 1\t 30 ours-ms\t 5 ns/op\nBenchmarkA/x=1-2 1 10 ours-ms\nBenchmarkA/x=1-2 1 20 ours-ms\nBenchmarkA/x=10-2 1 99 ours-ms\nnoise\n")
	if v, ok := rs.median("A/x=1", "ours-ms"); !ok || v != 20 {
		t.Errorf("got %v, %v, want 20", v, ok)
	}
	if _, ok := rs.median("A/x=1", "felix-ms"); ok {
		t.Error("a unit that no run has")
	}
}

// TestReadmeFigures: the first bullet of the README has the figures of the benchmark page.
func TestReadmeFigures(t *testing.T) {
	t.Chdir(root)
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`after (\d+) ms, (\d+) times sooner than kube-proxy .*? (\d+) times sooner than in\s+iptables\. .*? (\d+) to (\d+) times faster than by Felix`).FindSubmatch(readme)
	if m == nil {
		t.Fatal("the README has no sentence with the figures")
	}
	page, err := os.ReadFile("docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, proxy, _ := bytes.Cut(page, []byte("| 10,000 Services | contiv-agent, VPP |"))
	row := regexp.MustCompile(`^ ([0-9.]+) \|  \|\n(?:.*\n)*?\|  \| kube-proxy, nftables, minSyncPeriod 1ns \| [0-9.]+ \| ([0-9.]+) \|\n(?:.*\n)*?\|  \| kube-proxy, iptables, minSyncPeriod 1ns \| [0-9.]+ \| ([0-9]+)`).FindSubmatch(proxy)
	if row == nil {
		t.Fatal("the page has no row of kube-proxy")
	}
	if ms := number(t, row[1]); ms < number(t, m[1])-1 || ms > number(t, m[1])+1 {
		t.Errorf("README: %s ms, page: %v", m[1], ms)
	}
	if string(row[2]) != string(m[2]) || string(row[3]) != string(m[3]) {
		t.Errorf("README: %s and %s times, page: %s and %s", m[2], m[3], row[2], row[3])
	}
	_, snapshots, _ := bytes.Cut(page, []byte("time to calculate\n\n"))
	snapshots, _, _ = bytes.Cut(snapshots, []byte("\n## "))
	least, most := 1e9, 0.0
	for _, r := range regexp.MustCompile(`\| Felix \| [0-9.]+ \| ([0-9.]+) \|`).FindAllSubmatch(snapshots, -1) {
		least, most = min(least, number(t, r[1])), max(most, number(t, r[1]))
	}
	if least < number(t, m[4]) || most < number(t, m[5]) || most > number(t, m[5])+1 {
		t.Errorf("README: %s to %s times, page: %v to %v", m[4], m[5], least, most)
	}
}

// TestReadmeConformance: the README has the number of Kubernetes' tests of policies that pass on VPP.
func TestReadmeConformance(t *testing.T) {
	t.Chdir(root)
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/conformance/nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^\| .*Netpol.*\| (\w+) \| (\w+) \|`).FindAllSubmatch(page, -1)
	passed := 0
	for _, m := range all {
		if string(m[2]) == "pass" {
			passed++
		}
	}
	want := fmt.Sprintf(`%d of Kubernetes'\s+%d NetworkPolicy tests pass`, passed, len(all))
	if !regexp.MustCompile(want).Match(readme) {
		t.Errorf("README: want %q", want)
	}
}

func number(t *testing.T, text []byte) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
