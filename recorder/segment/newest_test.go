package segment

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The newest whole files within the limit are chosen, and the others are counted. Files of others do not count.
func TestNewest(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"00000009.journal": 40, "00000010.journal": 20, "00000011.journal": 30, "notes.journal": 5, "a.txt": 5} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for most, want := range map[int64]string{
		1000: "00000009.journal 40 00000010.journal 20 00000011.journal 30, older 0 0",
		89:   "00000010.journal 20 00000011.journal 30, older 1 40",
		50:   "00000010.journal 20 00000011.journal 30, older 1 40",
		49:   "00000011.journal 30, older 2 60",
		29:   ", older 3 90",
	} {
		files, older, err := Newest(dir, most)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range files {
			got += fmt.Sprintf("%s %d ", filepath.Base(f.Path), f.Bytes)
		}
		if got != "" {
			got = got[:len(got)-1]
		}
		if diff := cmp.Diff(want, fmt.Sprintf("%s, older %d %d", got, older.Files, older.Bytes)); diff != "" {
			t.Errorf("%d bytes: %s", most, diff)
		}
	}
	if files, older, err := Newest(filepath.Join(dir, "none"), 10); len(files) > 0 || older.Files > 0 || err != nil {
		t.Error(files, older, err)
	}
}
