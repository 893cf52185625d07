// Command shape turns Go trees into a table of figures about their size and structure, one column for each tree.
//
//	go run -C tools ./shape ../before ..
//
// It counts what is in packages of the tree's own module, without tests and without generated code. A figure that needs types (back
// references) comes from type-checked packages, so the module must build.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "shape: name at least one folder with a go.mod")
		os.Exit(2)
	}
	var columns []figures
	for _, dir := range os.Args[1:] {
		f, err := measure(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, "shape:", err)
			os.Exit(1)
		}
		columns = append(columns, f)
	}
	fmt.Print(table(os.Args[1:], columns))
}

// table is a Markdown table with a row for each figure.
func table(names []string, columns []figures) string {
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
	{"lines, without tests and generated code", func(f figures) string { return fmt.Sprint(f.lines) }},
	{"lines of tests", func(f figures) string { return fmt.Sprint(f.testLines) }},
	{"share of comment lines", func(f figures) string { return fmt.Sprintf("%.1f %%", 100*f.share(f.commentLines)) }},
	{"packages", func(f figures) string { return fmt.Sprint(len(f.packages)) }},
	{"packages above 2,500 lines", func(f figures) string { return f.above(2500) }},
	{"type with most fields", func(f figures) string { return f.most(f.fields) }},
	{"types above 15 fields", func(f figures) string { return fmt.Sprint(count(f.fields, 15)) }},
	{"type with most methods", func(f figures) string { return f.most(f.methods) }},
	{"types above 30 methods", func(f figures) string { return fmt.Sprint(count(f.methods, 30)) }},
	{"fields of `descriptor.Descriptor`", func(f figures) string { return fmt.Sprint(f.fields["vppagent/descriptor.Descriptor"]) }},
	{"functions: median, 95th percentile, longest", func(f figures) string { return f.functionSizes() }},
	{"bare names that more than five packages define", func(f figures) string { return f.bareNames() }},
	{"references between files of a package that no order of files makes forward", func(f figures) string { return f.backReferences() }},
}
