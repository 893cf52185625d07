package service

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/page"
)

// The example of the README is correct.
func TestREADME(t *testing.T) {
	changes, err := manifest.Load(page.File(t, "yaml"))
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
