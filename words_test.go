package contivagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/words"
)

// TestPlainWords keeps private idioms out of comments and pages: see test/words for the list and the replacements.
func TestPlainWords(t *testing.T) {
	rooms, err := words.Tree(".")
	if err != nil {
		t.Fatal(err)
	}
	for room, count := range rooms {
		if n := len(count.Findings); n > 0 {
			t.Errorf("room %s has %d private idioms:", room, n)
			for _, f := range count.Findings[max(0, n-40):] {
				t.Log(f)
			}
		}
	}
}

// TestRoomsHaveReadmes keeps a README in every top-level folder: what goes in, what comes out, the invariant, where to start.
func TestRoomsHaveReadmes(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || e.Name() == "bin" {
			continue
		}
		if _, err := os.Stat(filepath.Join(e.Name(), "README.md")); err != nil {
			t.Errorf("%s has no README.md: %v", e.Name(), err)
		}
	}
}
