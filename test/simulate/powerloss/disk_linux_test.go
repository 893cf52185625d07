package powerloss

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Content that an fsync has covered survives each loss; of the rest, each loss leaves its part.
func TestLosses(t *testing.T) {
	old, added := strings.Repeat("a", 600), strings.Repeat("b", 600)
	ops := []Op{
		{Kind: Folder, Path: "d"},
		{Kind: Sync, Path: "."},
		{Kind: Create, Path: "d/file"},
		{Kind: Write, Path: "d/file", Data: []byte(old)},
		{Kind: Sync, Path: "d/file"},
		{Kind: Sync, Path: "d"},
		{Kind: Write, Path: "d/file", At: 600, Data: []byte(added)},
		{Kind: Create, Path: "d/new"},
		{Kind: Write, Path: "d/new", Data: []byte("new")},
		{Kind: Rename, Path: "d/new", To: "d/renamed"},
		{Kind: Link, Path: "d/file", To: "d/link"},
		{Kind: Create, Path: "d/x"},
		{Kind: Remove, Path: "d/x"},
		{Kind: Say, Data: []byte("done")},
	}
	d, err := NewDisk(ops)
	if err != nil {
		t.Fatal(err)
	}
	for loss, want := range map[Loss]map[string]string{
		Nothing: {"d/file": old + added, "d/renamed": "new", "d/link": old + added},
		All:     {"d/file": old},
		Content: {"d/file": old, "d/renamed": "", "d/link": old},
		Names:   {"d/file": old + added},
	} {
		dir := t.TempDir()
		if err := d.Restore(dir, loss, nil); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"d/file", "d/renamed", "d/link", "d/new", "d/x"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if text, exists := want[name]; exists != (err == nil) || string(b) != text {
				t.Errorf("loss %d, %s: %q, %v; want %q", loss, name, b, err, text)
			}
		}
	}
	seen := map[string]bool{}
	for seed := range uint64(100) {
		dir := t.TempDir()
		if err := d.Restore(dir, Some, rand.New(rand.NewPCG(seed, 1))); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "d/file"))
		text := string(b)
		if err != nil || !strings.HasPrefix(text, old) || strings.Trim(text[600:], "b\x00") != "" {
			t.Fatalf("%q, %v", text, err)
		}
		seen[text] = true
		if b, err = os.ReadFile(filepath.Join(dir, "d/renamed")); err == nil {
			seen["renamed "+string(b)] = true
		}
	}
	for _, text := range []string{old, old + added, old + strings.Repeat("\x00", 600), old + strings.Repeat("b", 424), "renamed ", "renamed new"} {
		if !seen[text] {
			t.Errorf("no loss leaves %q", text)
		}
	}
}

func TestUnknownFile(t *testing.T) {
	if _, err := NewDisk([]Op{{Kind: Write, Path: "nothing"}}); err == nil {
		t.Error("no error")
	}
}
