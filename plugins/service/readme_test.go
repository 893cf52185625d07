package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/page"
)

// The example of the page is what happens.
func TestREADME(t *testing.T) {
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(page.Example(t, "yaml")), 0o600); err != nil {
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
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(page.Example(t, "text")), "\n"), got); diff != "" {
		t.Errorf("-page +got\n%s", diff)
	}
}
