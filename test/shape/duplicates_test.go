package shape

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDuplicates(t *testing.T) {
	lines := func(names string) string {
		var b strings.Builder
		for _, n := range strings.Split(names, "") {
			b.WriteString("\t" + n + "()\n")
		}
		return b.String()
	}
	for _, tc := range []struct {
		name  string
		files map[string]string // bodies of one function
		want  int
	}{
		{"six lines", map[string]string{"a/a.go": lines("abcdef"), "b/b.go": lines("abcdef")}, 1},
		{"a longer run counts once", map[string]string{"a/a.go": lines("abcdefgh"), "b/b.go": lines("abcdefgh")}, 1},
		{"five lines", map[string]string{"a/a.go": lines("abcde"), "b/b.go": lines("abcde")}, 0},
		{"comments and empty lines do not count", map[string]string{"a/a.go": lines("abc") + "\n\t// why\n" + lines("def"), "b/b.go": lines("abcdef")}, 1},
		{"three places are three pairs", map[string]string{"a/a.go": lines("abcdef"), "b/b.go": lines("abcdef"), "c/c.go": lines("abcdef")}, 3},
		{"tests do not count", map[string]string{"a/a.go": lines("abcdef"), "b/b_test.go": lines("abcdef")}, 0},
		{"within one file", map[string]string{"a/a.go": lines("abcdefxabcdef")}, 1},
	} {
		dir := t.TempDir()
		for name, body := range tc.files {
			path, pkg := filepath.Join(dir, name), filepath.Dir(name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("package "+pkg+"\n\nfunc f"+pkg+"() {\n"+body+"}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		files, err := Tree(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Duplicates(dir, files); err != nil || got != tc.want {
			t.Errorf("%s: %d pairs, %v; want %d", tc.name, got, err, tc.want)
		}
	}
}
