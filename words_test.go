package contivagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/words"
)

// idiomCaps are the private idioms in comments and pages that each room still has; no entry: none. A cap may only shrink.
var idiomCaps = map[string]int{
	"test": 30,
}

// idiomSlack is how far a room may be below its cap before the cap must follow.
const idiomSlack = 20

// TestPlainWords keeps private idioms out of comments and pages: see test/words for the list and the replacements.
func TestPlainWords(t *testing.T) {
	rooms, err := words.Tree(".")
	if err != nil {
		t.Fatal(err)
	}
	for room, count := range rooms {
		n, most := len(count.Findings), idiomCaps[room]
		if n > most {
			t.Errorf("room %s has %d private idioms, at most %d are allowed:", room, n, most)
			for _, f := range count.Findings[max(0, n-40):] {
				t.Log(f)
			}
		}
		if n < most-idiomSlack || n == 0 && most > 0 {
			t.Errorf("room %s has only %d private idioms: lower its cap of %d", room, n, most)
		}
	}
	for room := range idiomCaps {
		if rooms[room].Words == 0 {
			t.Errorf("room %s has a cap and no text", room)
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
