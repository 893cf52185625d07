package main

import (
	"encoding/json"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// The bill of materials names every module of the program once, with go.sum's hash, and does not change between runs.
func TestSBOM(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) < 10 {
		t.Fatalf("build info %v", info)
	}
	b, err := newBOM(info, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	again, _ := newBOM(info, "v1.2.3")
	one, _ := json.Marshal(b)
	two, _ := json.Marshal(again)
	if string(one) != string(two) || !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(b.Serial) {
		t.Errorf("serial %s; the same twice: %t", b.Serial, string(one) == string(two))
	}
	if m := b.Metadata.Component; m.Name != "github.com/contiv-agent/contiv-agent" || m.Version != "v1.2.3" || m.Type != "application" {
		t.Errorf("the program: %+v", m)
	}
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]bomComponent{}
	for _, c := range b.Components {
		if _, twice := byName[c.Name]; twice {
			t.Errorf("%s twice", c.Name)
		}
		if byName[c.Name] = c; c.Name != "std" && (len(c.Hashes) != 1 || !strings.Contains(string(sums), c.Name+" "+c.Version+" h1:")) {
			t.Errorf("%+v: no hash, or go.sum has another version", c)
		}
		if !slices.Contains(b.Dependencies[0].On, c.Ref) {
			t.Errorf("no component depends on %s", c.Ref)
		}
	}
	for _, m := range info.Deps {
		if byName[m.Path].Version != m.Version {
			t.Errorf("%s %s is missing", m.Path, m.Version)
		}
	}
	if byName["std"].Version == "" {
		t.Error("no Go version")
	}
}

// A program without a list of modules reports that, and does not print an empty bill.
func TestSBOMWithoutModules(t *testing.T) {
	if b, err := newBOM(&debug.BuildInfo{}, "v1"); err == nil {
		t.Errorf("%+v", b)
	}
}
