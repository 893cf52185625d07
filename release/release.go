// Package release turns a commit into the files of a release: archives of static programs, bills of materials, an image, a chart, a
// manifest for krew, and checksums of all of them.
//
// Invariant: the same commit, version and Go give the same bytes, on any machine and in any folder.
package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/cmd/sbom"
	"github.com/contiv-agent/contiv-agent/release/oci"
)

// The programs of a release, in the order of the build.
const (
	agentProgram = "contiv-agent"
	cniProgram   = "contiv-cni"
)

// Checksums is the file that names the SHA-256 of each other file, as sha256sum prints it.
const Checksums = "checksums.txt"

// Config says which release to make.
type Config struct {
	Source   string    // root of the repository; its commit is the release's
	Out      string    // folder of the files; it must be empty, or not exist
	Version  string    // as v1.2.3 or v1.2.3-rc.1
	Revision string    // commit, 40 hexadecimal digits; every program must be built of it
	Time     time.Time // of the commit; every file in an archive has it
	URL      string    // where the files will be: krew downloads from there
	Arches   []string  // values of GOARCH

	// Build builds a program for an architecture into a file; nil: the go command does.
	Build func(ctx context.Context, program, arch, file string) error
	Log   io.Writer // what is being done, one line each
}

var (
	semver   = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
	revision = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// Validate joins all problems of a configuration.
func (c *Config) Validate() error {
	var errs []error
	if !semver.MatchString(c.Version) {
		errs = append(errs, fmt.Errorf("version %q: want v1.2.3 or v1.2.3-rc.1", c.Version))
	}
	if !revision.MatchString(c.Revision) {
		errs = append(errs, fmt.Errorf("revision %q is not a commit", c.Revision))
	}
	if c.Time.IsZero() || len(c.Arches) == 0 || c.URL == "" {
		errs = append(errs, errors.New("the time of the commit, an architecture and the URL of the files are needed"))
	}
	if entries, err := os.ReadDir(c.Out); err == nil && len(entries) > 0 {
		errs = append(errs, fmt.Errorf("%s is not empty", c.Out))
	}
	return errors.Join(errs...)
}

// Make writes the files of a release.
func Make(ctx context.Context, c Config) error {
	if err := errors.Join(c.Validate(), c.changes()); err != nil {
		return err
	}
	if c.Build == nil {
		c.Build = c.compileProgram
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	built, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(built)
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	image := oci.Index{Name: agentProgram + ":" + c.Version, Time: c.Time}
	var archives []archive
	for _, arch := range c.Arches {
		p, err := c.programs(ctx, arch, filepath.Join(built, arch))
		if err != nil {
			return err
		}
		a, err := c.archive(arch, p)
		if err != nil {
			return err
		}
		archives = append(archives, a)
		image.Images = append(image.Images, c.image(arch, p))
	}
	var layout bytes.Buffer
	if err := image.Write(&layout); err != nil {
		return err
	}
	if err := c.keep(c.fileName("image.oci.tar"), layout.Bytes()); err != nil {
		return err
	}
	chart, err := c.chart()
	if err != nil {
		return err
	}
	plugin, err := c.krew(archives)
	if err != nil {
		return err
	}
	if err := errors.Join(c.keep(fmt.Sprintf("contiv-agent-chart-%s.tgz", strings.TrimPrefix(c.Version, "v")), chart), c.keep("contiv.yaml", plugin)); err != nil {
		return err
	}
	return c.checksums()
}

// changes fails unless CHANGELOG.md has a section of the version. Builds between releases need none.
func (c *Config) changes() error {
	text, err := os.ReadFile(filepath.Join(c.Source, "CHANGELOG.md"))
	if err != nil || strings.HasPrefix(c.Version, "v0.0.0-") {
		return err
	}
	if !regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(c.Version) + ` \(\d{4}-\d\d-\d\d\)$`).Match(text) {
		return fmt.Errorf("CHANGELOG.md has no section \"## %s (date)\"", c.Version)
	}
	return nil
}

func (c *Config) fileName(rest string) string { return agentProgram + "_" + c.Version + "_" + rest }

// keep writes a file of the release.
func (c *Config) keep(name string, content []byte) error {
	fmt.Fprintf(c.Log, "%9.1f MB  %s\n", float64(len(content))/1e6, name)
	return os.WriteFile(filepath.Join(c.Out, name), content, 0o644) //nolint:gosec // for everybody
}

// program is a built program and what it is built of.
type program struct {
	name          string
	content, bill []byte
}

// programs builds the programs of an architecture, and writes their bills of materials.
func (c *Config) programs(ctx context.Context, arch, dir string) (out []program, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{agentProgram, cniProgram} {
		file := filepath.Join(dir, name)
		fmt.Fprintf(c.Log, "building %s for linux/%s\n", name, arch)
		if err := c.Build(ctx, name, arch, file); err != nil {
			return nil, fmt.Errorf("build %s for %s: %w", name, arch, err)
		}
		p := program{name: name}
		if p.bill, err = c.bill(file); err != nil {
			return nil, err
		}
		if p.content, err = os.ReadFile(file); err != nil {
			return nil, err
		}
		if err := c.keep(fmt.Sprintf("%s_%s_linux_%s.cdx.json", name, c.Version, arch), p.bill); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// bill returns the bill of materials of a program, which must be built of the release's commit without changes.
func (c *Config) bill(file string) ([]byte, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["vcs.revision"] != c.Revision || settings["vcs.modified"] != "false" {
		return nil, fmt.Errorf("%s is built of commit %q (changes: %s), want %s without changes", filepath.Base(file), settings["vcs.revision"], settings["vcs.modified"], c.Revision)
	}
	var b bytes.Buffer
	err = sbom.WriteOf(&b, info, c.Version)
	return b.Bytes(), err
}

// checksums writes the SHA-256 of each file.
func (c *Config) checksums() error {
	entries, err := os.ReadDir(c.Out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(c.Out, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), e.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return c.keep(Checksums, []byte(strings.Join(lines, "")))
}
