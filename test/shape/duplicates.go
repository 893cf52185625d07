package shape

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// window is the number of equal lines from which on two places are duplicates.
const window = 6

// place is a line of code in a file.
type place struct{ file, line int }

// Duplicates counts the pairs of places that share six or more lines in a row. Tests, generated code, comments, imports, empty lines, and
// lines of closing brackets alone do not count, and neither does white space at either end of a line. The error names a file that cannot
// be read.
func Duplicates(root string, files []File) (pairs int, err error) {
	var code [][]string
	for _, f := range files {
		if f.IsTest() || f.Generated() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.Path)))
		if err != nil {
			return 0, fmt.Errorf("duplicates: %w", err)
		}
		code = append(code, codeLines(f, string(text)))
	}
	places := map[string][]place{}
	for file, lines := range code {
		for i := range max(0, len(lines)-window+1) {
			key := strings.Join(lines[i:i+window], "\n")
			places[key] = append(places[key], place{file, i})
		}
	}
	for _, same := range places {
		for i, a := range same {
			for _, b := range same[i+1:] {
				if beginsRun(code, a, b) {
					pairs++
				}
			}
		}
	}
	return pairs, nil
}

// beginsRun reports whether two equal places are the beginning of what the files share there, and do not overlap.
func beginsRun(code [][]string, a, b place) bool {
	if a.file == b.file && b.line-a.line < window {
		return false
	}
	return a.line == 0 || b.line == 0 || code[a.file][a.line-1] != code[b.file][b.line-1]
}

// codeLines are the lines of a file that count, without white space at their ends.
func codeLines(f File, text string) (out []string) {
	skip := map[int]bool{}
	for _, c := range f.AST.Comments {
		for l := f.Fset.Position(c.Pos()).Line; l <= f.Fset.Position(c.End()).Line; l++ {
			skip[l] = true
		}
	}
	begin := f.Fset.Position(f.AST.Name.End()).Line // the package clause
	for _, imp := range f.AST.Imports {
		begin = max(begin, f.Fset.Position(imp.End()).Line)
	}
	for i, line := range slices.Collect(strings.Lines(text)) {
		line = strings.TrimSpace(line)
		if i < begin || strings.Trim(line, "(){}[],") == "" || skip[i+1] && strings.HasPrefix(line, "//") {
			continue
		}
		out = append(out, line)
	}
	return out
}
