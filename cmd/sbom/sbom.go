// Package sbom turns the list of modules in this program into a bill of materials.
//
// Invariant: the same source gives the same text.
package sbom

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
)

// bom is the part of CycloneDX 1.6 that lists the contents of a Go program (https://cyclonedx.org/docs/1.6/json).
type bom struct {
	Format       string         `json:"bomFormat"`
	Spec         string         `json:"specVersion"`
	Serial       string         `json:"serialNumber"`
	Version      int            `json:"version"`
	Metadata     bomMetadata    `json:"metadata"`
	Components   []bomComponent `json:"components"`
	Dependencies []bomDepends   `json:"dependencies"`
}

type bomMetadata struct {
	Timestamp string       `json:"timestamp,omitempty"` // time of the commit, so that the same source gives the same text
	Component bomComponent `json:"component"`
}

type bomComponent struct {
	Type       string        `json:"type"`
	Ref        string        `json:"bom-ref"`
	Name       string        `json:"name"`
	Version    string        `json:"version,omitempty"`
	PURL       string        `json:"purl"`
	Hashes     []bomHash     `json:"hashes,omitempty"`
	Properties []bomProperty `json:"properties,omitempty"`
}

// bomHash is Go's hash of a module's files (golang.org/x/mod/sumdb/dirhash); go.sum has it in base64.
type bomHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type bomProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type bomDepends struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn,omitempty"`
}

var errNoModules = errors.New("the program was built without its list of modules")

// Write writes the modules in this program: those that the linker included, not all that go.mod allows.
func Write(w io.Writer, version string) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errNoModules
	}
	return WriteOf(w, info, version)
}

// WriteOf is Write for another program.
func WriteOf(w io.Writer, info *debug.BuildInfo, version string) error {
	b, err := newBOM(info, version)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(b)
}

func newBOM(info *debug.BuildInfo, version string) (*bom, error) {
	if info.Main.Path == "" {
		return nil, errNoModules
	}
	self := component("application", info.Main.Path, version, "")
	b := &bom{Format: "CycloneDX", Spec: "1.6", Version: 1}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			b.Metadata.Timestamp = s.Value
		}
		self.Properties = append(self.Properties, bomProperty{"go:build:" + s.Key, s.Value})
	}
	b.Metadata.Component = self
	goVersion, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	b.Components = append(b.Components, component("library", "std", goVersion, ""))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, component("library", m.Path, m.Version, m.Sum))
	}
	slices.SortFunc(b.Components, func(x, y bomComponent) int { return strings.Compare(x.Ref, y.Ref) })
	all := bomDepends{Ref: self.Ref}
	for _, c := range b.Components {
		all.On = append(all.On, c.Ref)
	}
	b.Dependencies = []bomDepends{all}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // a UUID of version 8, by content
	b.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	return b, nil
}

func component(kind, path, version, sum string) bomComponent {
	purl := "pkg:golang/" + (&url.URL{Path: path}).EscapedPath()
	if version != "" {
		purl += "@" + url.QueryEscape(version)
	}
	c := bomComponent{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(raw) == sha256.Size {
		c.Hashes = []bomHash{{"SHA-256", hex.EncodeToString(raw)}}
	}
	return c
}
