package shape

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFeedback(t *testing.T) {
	for _, tc := range []struct {
		name  string
		edges [][]int
		want  int
	}{
		{"no cycle", [][]int{{0, 3, 1}, {0, 0, 2}, {0, 0, 0}}, 0},
		{"no cycle, files in the other order", [][]int{{0, 0, 0}, {3, 0, 0}, {1, 2, 0}}, 0},
		{"two files need each other", [][]int{{0, 5}, {2, 0}}, 2},
		{"a ring", [][]int{{0, 1, 0}, {0, 0, 1}, {1, 0, 0}}, 1},
	} {
		if got := feedback(tc.edges); got != tc.want {
			t.Errorf("%s: %d back references, want %d", tc.name, got, tc.want)
		}
	}
}

// treeOf parses files with these texts.
func treeOf(t *testing.T, texts map[string]string) []File {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Tree(dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestMeasure(t *testing.T) {
	files := treeOf(t, map[string]string{
		"go.mod":      "module example.com/m\n\ngo 1.26\n",
		"a/a.go":      "// Package a is one.\npackage a\n\n// T has two fields.\ntype T struct{ x, y int }\n\nfunc (t T) add() int { return helper(t) }\n",
		"a/b.go":      "package a\n\nfunc helper(t T) int { return t.x }\n",
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) { _ = T{}.add() }\n",
	})
	f := Measure(files)
	if f.Lines != 10 || f.TestLines != 5 || f.CommentLines != 2 || f.Fields["a.T"] != 2 || f.Methods["a.T"] != 1 || !f.Names["add"]["a"] {
		t.Errorf("figures = %+v", f)
	}
	if back, all := References(files); back["a"] != 1 || all != 2 { // a.go needs helper, b.go needs T
		t.Errorf("%v of %d references are back", back, all)
	}
}
