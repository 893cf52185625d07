// Command print turns Go trees into a table of figures about their size and structure, one column for each tree.
//
//	make shape BEFORE=folder
package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/test/shape"
	"github.com/contiv-agent/contiv-agent/test/words"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "print: name at least one folder")
		os.Exit(2)
	}
	var columns []figures
	for _, dir := range os.Args[1:] {
		files, err := shape.Tree(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, "print:", err)
			os.Exit(1)
		}
		f, err := measure(dir, files)
		if err != nil {
			fmt.Fprintln(os.Stderr, "print:", err)
			os.Exit(1)
		}
		columns = append(columns, f)
	}
	fmt.Print(markdown(os.Args[1:], columns))
}

type figures struct {
	shape.Figures
	back                          map[string]int // by package
	references, duplicates, forms int
	idioms                        words.Count
}

// measure takes all figures of the tree in a folder.
func measure(dir string, files []shape.File) (f figures, err error) {
	f.Figures = shape.Measure(files)
	f.back, f.references = shape.References(files)
	if f.duplicates, err = shape.Duplicates(dir, files); err != nil {
		return f, err
	}
	rooms, err := words.Tree(dir)
	f.idioms = words.Sum(rooms)
	if page, err := os.ReadFile(filepath.Join(dir, "docs", "ARCHITECTURE.md")); err == nil {
		f.forms = policyForms(string(page))
	}
	return f, err
}

// policyForms is the number of the last row in the table of the forms that a policy passes through; 0: the page has no such table.
func policyForms(page string) (last int) {
	_, section, _ := strings.Cut(page, "\n## The forms of a policy\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		number, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if n, err := strconv.Atoi(number); err == nil {
			last = max(last, n)
		}
	}
	return last
}

// total is the sum of all numbers.
func total(of map[string]int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
}

// markdown is a Markdown table with a row for each figure.
func markdown(names []string, columns []figures) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, n := range names {
		fmt.Fprintf(&b, " %s |", filepath.Base(n))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(names)) + "\n")
	for _, row := range rows {
		b.WriteString("| " + row.name + " |")
		for _, c := range columns {
			b.WriteString(" " + row.text(c) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// rows are the figures in the order in which the table has them.
var rows = []struct { // read only
	name string
	text func(figures) string
}{
	{"lines, without tests and generated code", func(f figures) string { return fmt.Sprint(f.Lines) }},
	{"lines of tests", func(f figures) string { return fmt.Sprint(f.TestLines) }},
	{"share of comment lines", func(f figures) string { return percent(f.CommentLines, f.Lines) }},
	{"packages", func(f figures) string { return fmt.Sprint(len(f.Packages)) }},
	{"packages above 2,500 lines", func(f figures) string { return above(f.Packages, 2500) }},
	{"type with most fields", func(f figures) string { return most(f.Fields) }},
	{"types above 15 fields", func(f figures) string { return fmt.Sprint(countAbove(f.Fields, 15)) }},
	{"type with most methods", func(f figures) string { return most(f.Methods) }},
	{"types above 30 methods", func(f figures) string { return fmt.Sprint(countAbove(f.Methods, 30)) }},
	{"fields of `descriptor.Descriptor`", func(f figures) string { return fmt.Sprint(f.Fields["vppagent/descriptor.Descriptor"]) }},
	{"functions: median, 95th percentile, longest", func(f figures) string { return sizes(f.Functions) }},
	{"bare names that more than five packages define", func(f figures) string { return bareNames(f.Names) }},
	{"references between files of a package that no order of files makes forward", func(f figures) string {
		return fmt.Sprintf("%d of %d (%s)", total(f.back), f.references, percent(total(f.back), f.references))
	}},
	{"such references, packages with more than 40", func(f figures) string { return above(f.back, 40) }},
	{"pairs of places that share six lines of code", func(f figures) string { return fmt.Sprint(f.duplicates) }},
	{"forms that a policy passes through", func(f figures) string { return fmt.Sprint(f.forms) }},
	{"private idioms per 10,000 words", func(f figures) string { return fmt.Sprintf("%.1f", f.idioms.Rate()) }},
}

func percent(n, of int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(1, of))) }

// above lists what has more than a number.
func above(of map[string]int, number int) string {
	var out []string
	for _, name := range slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) }) {
		if of[name] > number {
			out = append(out, fmt.Sprintf("%s %d", name, of[name]))
		}
	}
	return fmt.Sprintf("%d: %s", len(out), strings.Join(out, ", "))
}

// most is the first name with the highest number.
func most(of map[string]int) string {
	best := ""
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if best == "" || of[name] > of[best] {
			best = name
		}
	}
	return fmt.Sprintf("%s %d", best, of[best])
}

func countAbove(of map[string]int, above int) (n int) {
	for _, v := range of {
		if v > above {
			n++
		}
	}
	return n
}

func sizes(functions []int) string {
	if len(functions) == 0 {
		return "none"
	}
	s := slices.Sorted(slices.Values(functions))
	return fmt.Sprintf("%d, %d, %d lines", s[len(s)/2], s[len(s)*95/100], s[len(s)-1])
}

func bareNames(names map[string]map[string]bool) string {
	packages := map[string]int{}
	for name, dirs := range names {
		packages[name] = len(dirs)
	}
	return fmt.Sprintf("%d (most: %s)", countAbove(packages, 5), most(packages))
}
