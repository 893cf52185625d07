package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/cmd/sbom"
)

// The bill of materials names every module of the program once, with go.sum's hash, and does not change between runs.
func TestSBOM(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) < 10 {
		t.Fatalf("build info %v", info)
	}
	var one, two bytes.Buffer
	if err := errors.Join(sbom.Write(&one, "v1.2.3"), sbom.Write(&two, "v1.2.3")); err != nil {
		t.Fatal(err)
	}
	type component struct {
		Type, Name, Version string
		Ref                 string `json:"bom-ref"`
		Hashes              []any
	}
	var b struct {
		SerialNumber string
		Metadata     struct{ Component component }
		Components   []component
		Dependencies []struct{ DependsOn []string }
	}
	if err := json.Unmarshal(one.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	if one.String() != two.String() || !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(b.SerialNumber) {
		t.Errorf("serial %s; the same twice: %t", b.SerialNumber, one.String() == two.String())
	}
	if m := b.Metadata.Component; m.Name != "github.com/contiv-agent/contiv-agent" || m.Version != "v1.2.3" || m.Type != "application" {
		t.Errorf("the program: %+v", m)
	}
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]component{}
	for _, c := range b.Components {
		if _, twice := byName[c.Name]; twice {
			t.Errorf("%s twice", c.Name)
		}
		if byName[c.Name] = c; c.Name != "std" && (len(c.Hashes) != 1 || !strings.Contains(string(sums), c.Name+" "+c.Version+" h1:")) {
			t.Errorf("%+v: no hash, or go.sum has another version", c)
		}
		if !slices.Contains(b.Dependencies[0].DependsOn, c.Ref) {
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
