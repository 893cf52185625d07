//go:build nodes

package kube

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// imageOf is an image of one layer, as docker save writes it and containerd imports it.
type imageOf struct {
	name       string            // with a tag; with a registry, or docker.io/library is meant
	also       []string          // other names, likewise
	files      map[string]string // path in the image → file of this machine
	env        []string
	entrypoint []string
	args       []string // of the entrypoint, if a pod has none
}

// references are the whole names.
func (im imageOf) references() (out []string) {
	for _, name := range append([]string{im.name}, im.also...) {
		if !strings.Contains(name, "/") {
			name = "docker.io/library/" + name
		}
		out = append(out, name)
	}
	return out
}

// archive writes it into a folder.
func (im imageOf) archive(t *testing.T, dir string) {
	t.Helper()
	layer := im.layer(t)
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Env": append([]string{"PATH=/usr/local/bin"}, im.env...), "Entrypoint": im.entrypoint, "Cmd": im.args},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]map[string]any{{"Config": id, "RepoTags": im.references(), "Layers": []string{"layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, strings.NewReplacer(":", "-", "/", "-").Replace(im.name)+".tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, part := range []struct {
		name    string
		content []byte
	}{{"manifest.json", manifest}, {id, config}, {"layer.tar", layer}} {
		writeTar(t, w, &tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.content))}, bytes.NewReader(part.content))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func (im imageOf) layer(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	folders := map[string]bool{"/tmp": true}
	for path := range im.files {
		for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
			folders[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		writeTar(t, w, &tar.Header{Name: dir[1:] + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	for _, path := range slices.Sorted(maps.Keys(im.files)) {
		f, err := os.Open(im.files[path])
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		writeTar(t, w, &tar.Header{Name: path[1:], Mode: 0o755, Size: info.Size()}, f)
		_ = f.Close() // it was read only
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func writeTar(t *testing.T, w *tar.Writer, h *tar.Header, content io.Reader) {
	t.Helper()
	err := w.WriteHeader(h)
	if err == nil && content != nil {
		_, err = io.Copy(w, content)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// vppImage is a VPP under the name that the manifests expect: the real one of CONTIV_VPP with its libraries and the library of deploy/vpp/epoll.c, or the
// simulated one.
func vppImage(t *testing.T, dir string) imageOf {
	t.Helper()
	im := imageOf{name: "contiv-vpp:e2e", files: map[string]string{}, entrypoint: []string{"vpp"}}
	vpp := realVPP()
	if vpp == "" {
		im.files["/usr/local/bin/vpp"], im.files["/usr/local/bin/contiv-agent"] = filepath.Join(dir, "vpp"), built.agent
		return im
	}
	im.files["/usr/local/lib/epoll.so"], im.files[vpp] = filepath.Join(dir, "epoll.so"), vpp
	im.env = []string{"PATH=" + filepath.Dir(vpp), "LD_PRELOAD=/usr/local/lib/epoll.so"}
	conf, err := os.ReadFile(deploy + "/vpp/startup.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^  plugin (\w+\.so) `).FindAllStringSubmatch(string(conf), -1) {
		found, _ := filepath.Glob(filepath.Join(filepath.Dir(vpp), "../lib/*/vpp_plugins", m[1])) // the pattern has no error
		for _, file := range found {
			im.files[file] = file
		}
	}
	im.addLibraries(t)
	return im
}

// addLibraries adds the libraries of the image's programs.
func (im imageOf) addLibraries(t *testing.T) {
	t.Helper()
	for _, file := range slices.Collect(maps.Values(im.files)) {
		out, err := exec.Command("ldd", file).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", file, err)
		}
		for _, m := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
			im.files[m[1]] = m[1]
		}
	}
}

// archives writes the images of a cluster into a folder: those of deploy, what Pods of the test run, what containerd starts for each Pod, and more.
func archives(t *testing.T, dir string, more ...imageOf) {
	t.Helper()
	for _, im := range append([]imageOf{
		{name: "contiv-agent:e2e", files: map[string]string{"/usr/local/bin/contiv-agent": built.agent, "/usr/local/bin/contiv-cni": built.plugin}, entrypoint: []string{"contiv-agent"}},
		vppImage(t, dir),
		{name: "pause:e2e", files: map[string]string{"/usr/local/bin/guestbook": built.guestbook}, entrypoint: []string{"guestbook", "pause"}},
		{name: "agnhost:e2e", files: map[string]string{"/usr/local/bin/agnhost": built.agnhost, "/usr/local/bin/guestbook": built.guestbook}, entrypoint: []string{"agnhost"}},
	}, more...) {
		im.archive(t, dir)
	}
}
