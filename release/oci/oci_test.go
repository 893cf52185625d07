package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func unpacked(t *testing.T, r io.Reader) (files map[string][]byte, order []string) {
	t.Helper()
	files = map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files, order
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			content = []byte("-> " + h.Linkname)
		}
		files[h.Name], order = content, append(order, h.Name)
	}
}

// readObject reads an object of a layout, and checks its digest and its size.
func (d descriptor) readObject(t *testing.T, files map[string][]byte, out any) []byte {
	t.Helper()
	sum := strings.TrimPrefix(d.Digest, "sha256:")
	content, ok := files["blobs/sha256/"+sum]
	if !ok || len(content) != d.Size || fmt.Sprintf("%x", sha256.Sum256(content)) != sum {
		t.Fatalf("%+v: %d bytes", d, len(content))
	}
	if out != nil {
		dec := json.NewDecoder(bytes.NewReader(content))
		dec.DisallowUnknownFields()
		if err := dec.Decode(out); err != nil {
			t.Fatal(err)
		}
	}
	return content
}

// TestLayout follows the image from index.json to the files of each layer, as a program that loads it does.
func TestLayout(t *testing.T) {
	x := Index{Name: "contiv-agent:v1.2.3", Time: time.Unix(1700000000, 0)}
	for _, arch := range []string{"amd64", "arm64"} {
		x.Images = append(x.Images, Image{Arch: arch, Entrypoint: []string{"program"}, Env: []string{"PATH=/bin"}, Files: []File{
			{Path: "usr/bin/program", Mode: 0o755, Content: []byte(arch)}, {Path: "usr/bin/other", Link: "program"}, {Path: "etc/same", Mode: 0o644, Content: []byte("same")},
		}})
	}
	var one, two bytes.Buffer
	if err := errors.Join(x.Write(&one), x.Write(&two)); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Fatalf("%v; or the same index gives other bytes", err)
	}
	files, _ := unpacked(t, &one)
	if string(files["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout: %s", files["oci-layout"])
	}
	var top, images index
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json: %v, %+v", err, top)
	}
	if a := top.Manifests[0].Annotations; a["org.opencontainers.image.ref.name"] != "v1.2.3" || a["io.containerd.image.name"] != "docker.io/library/contiv-agent:v1.2.3" {
		t.Errorf("names: %v", a)
	}
	if top.Manifests[0].readObject(t, files, &images); len(images.Manifests) != 2 {
		t.Fatalf("%+v", images)
	}
	for _, d := range images.Manifests {
		var m manifest
		var c config
		d.readObject(t, files, &m)
		m.Config.readObject(t, files, &c)
		if len(m.Layers) != 1 || d.Platform == nil || d.Platform.OS != "linux" || *d.Platform != c.platform || c.Config.Entrypoint[0] != "program" || c.Config.Env[0] != "PATH=/bin" {
			t.Fatalf("%+v: %+v", d, c)
		}
		z, err := gzip.NewReader(bytes.NewReader(m.Layers[0].readObject(t, files, nil)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil || c.RootFS.DiffIDs[0] != fmt.Sprintf("sha256:%x", sha256.Sum256(plain)) {
			t.Errorf("%v: diff ID %s", err, c.RootFS.DiffIDs[0])
		}
		layer, order := unpacked(t, bytes.NewReader(plain))
		if want := "etc/ etc/same usr/ usr/bin/ usr/bin/other usr/bin/program"; strings.Join(order, " ") != want {
			t.Errorf("layer: %q, want %q", order, want)
		}
		if string(layer["usr/bin/program"]) != d.Platform.Architecture || string(layer["usr/bin/other"]) != "-> program" {
			t.Errorf("%s has the program of %s", d.Platform.Architecture, layer["usr/bin/program"])
		}
	}
}
