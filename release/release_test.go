package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/test/pace"
)

// smallCommit makes a repository with a small program, and returns its folder and its commit.
func smallCommit(t *testing.T) (dir, revision string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/small\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n", "LICENSE": "free\n", "CHANGELOG.md": "# Changes\n\n## v1.2.3 (2026-01-02)\n",
		"docs/man/contiv-agent.1": ".TH\n", "deploy/helm/contiv-agent/Chart.yaml": "name: contiv-agent\nversion: 0.1.0\nappVersion: dev\n",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-q", "-m", "small")
	return dir, git("rev-parse", "HEAD")
}

// smallRelease is the configuration of a release of that repository, whose programs are all the small one.
func smallRelease(t *testing.T, dir, revision string) Config {
	t.Helper()
	pace.NotRaced(t) // programs that are built
	if testing.Short() {
		t.Skip("builds the standard library for arm64: make wide does")
	}
	return Config{
		Source: dir, Out: filepath.Join(t.TempDir(), "dist"), Version: "v1.2.3", Revision: revision, Time: time.Unix(1700000000, 0), URL: "https://example.com/v1.2.3",
		Arches: []string{"amd64", "arm64"},
		Build: func(ctx context.Context, program, arch, file string) error {
			cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w -X main.name="+program+arch, "-o", file, ".")
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		},
	}
}

func filesOf(t *testing.T, c Config) map[string][]byte {
	t.Helper()
	if err := Make(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if out[e.Name()], err = os.ReadFile(filepath.Join(c.Out, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// contents are the files of an archive: content, or " -> " and the target of a link; folders have none.
func contents(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	out, tr := map[string]string{}, tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %s", h.Name, h.Uid, h.Gid, h.Uname)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			out[h.Name] = " -> " + h.Linkname
		case tar.TypeReg:
			out[h.Name] = string(content)
		}
	}
}

func unzipped(t *testing.T, content []byte) io.Reader {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFilesOfARelease: archives, bills, chart, krew's manifest and checksums belong together, and are the same the second time.
func TestFilesOfARelease(t *testing.T) {
	dir, revision := smallCommit(t)
	files := filesOf(t, smallRelease(t, dir, revision))
	want := []string{
		"checksums.txt", "contiv-agent-chart-1.2.3.tgz", "contiv-agent_v1.2.3_image.oci.tar", "contiv-agent_v1.2.3_linux_amd64.cdx.json",
		"contiv-agent_v1.2.3_linux_amd64.tar.gz", "contiv-agent_v1.2.3_linux_arm64.cdx.json", "contiv-agent_v1.2.3_linux_arm64.tar.gz",
		"contiv-cni_v1.2.3_linux_amd64.cdx.json", "contiv-cni_v1.2.3_linux_arm64.cdx.json", "contiv.yaml",
	}
	var got []string
	var sums strings.Builder
	for name := range files {
		got = append(got, name)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	for _, name := range want[1:] {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	if string(files[Checksums]) != sums.String() {
		t.Errorf("%s:\n%s\nwant:\n%s", Checksums, files[Checksums], &sums)
	}
	var plugin krewPlugin
	if err := yaml.UnmarshalStrict(files["contiv.yaml"], &plugin); err != nil || len(plugin.Spec.Platforms) != 2 {
		t.Fatalf("%v: %s", err, files["contiv.yaml"])
	}
	for _, p := range plugin.Spec.Platforms {
		name := "contiv-agent_v1.2.3_linux_" + p.Selector.MatchLabels["arch"] + ".tar.gz"
		if p.URI != "https://example.com/v1.2.3/"+name || p.SHA256 != fmt.Sprintf("%x", sha256.Sum256(files[name])) {
			t.Errorf("krew: %+v", p)
		}
		in := contents(t, unzipped(t, files[name]))
		for _, f := range append(p.Files, krewFile{From: p.Bin}, krewFile{From: "contiv-cni"}, krewFile{From: "man/contiv-agent.1"}, krewFile{From: "CHANGELOG.md"}) {
			if content, ok := in[f.From]; !ok || strings.HasPrefix(content, " -> ") {
				t.Errorf("%s: %s is missing, or a link, which krew refuses", name, f.From)
			}
		}
	}
	chart := contents(t, unzipped(t, files["contiv-agent-chart-1.2.3.tgz"]))
	if got := chart["contiv-agent/Chart.yaml"]; got != "name: contiv-agent\nversion: 1.2.3\nappVersion: v1.2.3\n" {
		t.Errorf("chart: %s", got)
	}
	again := filesOf(t, smallRelease(t, dir, revision))
	for name := range files {
		if !bytes.Equal(files[name], again[name]) {
			t.Errorf("%s differs the second time", name)
		}
	}
}

// TestRefusals: a program of another commit or of a changed tree makes no release; neither do wrong settings.
func TestRefusals(t *testing.T) {
	dir, revision := smallCommit(t)
	wrong := func(want string, change func(*Config)) {
		t.Helper()
		c := smallRelease(t, dir, revision)
		change(&c)
		if err := Make(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if sums, err := os.ReadFile(filepath.Join(c.Out, Checksums)); err == nil {
			t.Errorf("%s: it made a release: %s", want, sums)
		}
	}
	wrong("want v1.2.3", func(c *Config) { c.Version = "1.2" })
	wrong("want v1.2.3", func(c *Config) { c.Version = "v1.02.3" })
	wrong("is not a commit", func(c *Config) { c.Revision = "main" })
	wrong("no section \"## v1.2.4 (date)\"", func(c *Config) { c.Version = "v1.2.4" })
	wrong("is not empty", func(c *Config) { c.Out = dir })
	wrong("is built of commit", func(c *Config) { c.Revision = strings.Repeat("0", 40) })
	if err := os.WriteFile(filepath.Join(dir, "more.go"), []byte("package main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong("changes: true", func(*Config) {})
}
