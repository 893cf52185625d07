package release

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/contiv-agent/contiv-agent/release/oci"
)

// archive is the programs of one architecture in a file.
type archive struct {
	arch, name string
	sum        [sha256.Size]byte
}

// archive writes the programs, the licence and the manual pages of an architecture. It has no links: krew refuses them.
func (c *Config) archive(arch string, programs []program) (archive, error) {
	var files []oci.File
	for _, p := range programs {
		files = append(files, oci.File{Path: p.name, Mode: 0o755, Content: p.content})
	}
	for _, from := range []string{"LICENSE", "CHANGELOG.md", "docs/man"} {
		more, err := readFiles(filepath.Join(c.Source, from), path.Base(from))
		if err != nil {
			return archive{}, err
		}
		files = append(files, more...)
	}
	content, err := oci.Compressed(files, c.Time)
	if err != nil {
		return archive{}, err
	}
	a := archive{arch, c.fileName("linux_" + arch + ".tar.gz"), sha256.Sum256(content)}
	return a, c.keep(a.name, content)
}

// readFiles returns a file, or the files of a folder, below a path in an archive.
func readFiles(from, to string) (out []oci.File, err error) {
	err = filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		rest, _ := filepath.Rel(from, file) // file is below from
		out = append(out, oci.File{Path: path.Join(to, filepath.ToSlash(rest)), Mode: 0o644, Content: content})
		return err
	})
	return out, err
}

// image is what deploy/Dockerfile makes: both programs, the names under which the agent is another program, and the bill of materials.
func (c *Config) image(arch string, programs []program) oci.Image {
	i := oci.Image{Arch: arch, Entrypoint: []string{agentProgram}, Env: []string{"PATH=/usr/local/bin"}, Labels: map[string]string{
		"org.opencontainers.image.title":    agentProgram,
		"org.opencontainers.image.version":  c.Version,
		"org.opencontainers.image.revision": c.Revision,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}}
	for _, p := range programs {
		i.Files = append(i.Files, oci.File{Path: "usr/local/bin/" + p.name, Mode: 0o755, Content: p.content})
	}
	for _, name := range []string{"contiv-felix-driver", "kubectl-contiv"} {
		i.Files = append(i.Files, oci.File{Path: "usr/local/bin/" + name, Link: agentProgram})
	}
	i.Files = append(i.Files, oci.File{Path: "usr/share/sbom/contiv-agent.cdx.json", Mode: 0o644, Content: programs[0].bill})
	return i
}

var chartVersions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// chart is the Helm chart with the version of the release, as helm package writes it.
func (c *Config) chart() ([]byte, error) {
	files, err := readFiles(filepath.Join(c.Source, "deploy/helm/contiv-agent"), agentProgram)
	if err != nil {
		return nil, err
	}
	set := 0
	for i := range files {
		if f := &files[i]; f.Path == agentProgram+"/Chart.yaml" {
			f.Content = chartVersions.ReplaceAllFunc(f.Content, func(line []byte) []byte {
				set++
				if bytes.HasPrefix(line, []byte("version")) {
					return []byte("version: " + strings.TrimPrefix(c.Version, "v"))
				}
				return []byte("appVersion: " + c.Version)
			})
		}
	}
	if set != 2 {
		return nil, fmt.Errorf("%s: %d lines with a version, want 2", "Chart.yaml", set)
	}
	return oci.Compressed(files, c.Time)
}
