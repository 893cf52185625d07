package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// The example of the page is what happens.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, examples, _ := strings.Cut(string(page), "\n## EXAMPLES\n")
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(block(t, examples, "yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := manifest.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{NodeName: "node-1"})
	for _, ch := range changes {
		if ch.Err != nil {
			t.Fatal(ch.Err)
		}
		p.Apply(ch)
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range p.Services() {
		got = append(got, s.Rendered.String())
	}
	got = append(got, reasons(p.Notes())...)
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(block(t, examples, "text")), "\n"), got); diff != "" {
		t.Errorf("-page +got\n%s", diff)
	}
}

// block is the first fenced block of a language.
func block(t *testing.T, page, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "```"+language+"\n")
	body, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("no block of %s", language)
	}
	return body
}
