// Package oci turns files into a container image for several architectures, as an archive with an OCI image layout
// (github.com/opencontainers/image-spec v1.1), without a daemon or a registry.
//
// Invariant: the same input gives the same bytes.
package oci

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Index is an image for one or more architectures.
type Index struct {
	Name   string // as contiv-agent:v1.2.3; programs that load the archive give the image this name
	Time   time.Time
	Images []Image
}

// Image is the image of one architecture: one layer.
type Image struct {
	Arch       string // GOARCH
	Files      []File
	Entrypoint []string
	Env        []string // NAME=value
	Labels     map[string]string
}

// Media types of the specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type config struct {
	platform
	Created time.Time     `json:"created"`
	Config  configProcess `json:"config"`
	RootFS  configLayers  `json:"rootfs"`
}

type configProcess struct {
	Entrypoint []string          `json:"Entrypoint"`
	Env        []string          `json:"Env,omitempty"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

type configLayers struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// layout collects the files of an archive.
type layout struct{ files []File }

// Write writes the archive.
func (x *Index) Write(w io.Writer) error {
	var l layout
	images := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, i := range x.Images {
		d, err := l.image(i, x.Time)
		if err != nil {
			return err
		}
		images.Manifests = append(images.Manifests, d)
	}
	one, err := l.object(typeIndex, images)
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(x.Name, ":")
	one.Annotations = map[string]string{"io.containerd.image.name": "docker.io/library/" + x.Name, "org.opencontainers.image.ref.name": tag}
	top, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{one}})
	if err != nil {
		return err
	}
	l.files = append(l.files, File{Path: "index.json", Mode: 0o644, Content: top}, File{Path: "oci-layout", Mode: 0o644, Content: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	content, err := pack(l.files, x.Time)
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// image adds the layer, the configuration and the manifest of one architecture.
func (l *layout) image(i Image, at time.Time) (descriptor, error) {
	plain, err := pack(i.Files, at)
	if err != nil {
		return descriptor{}, err
	}
	small, err := compress(plain)
	if err != nil {
		return descriptor{}, err
	}
	on := platform{i.Arch, "linux"}
	c, err := l.object(typeConfig, config{
		on, at.UTC(),
		configProcess{i.Entrypoint, i.Env, i.Labels},
		configLayers{"layers", []string{digest(plain)}},
	})
	if err != nil {
		return descriptor{}, err
	}
	d, err := l.object(typeManifest, manifest{2, typeManifest, c, []descriptor{l.blob(typeLayer, small)}})
	d.Platform = &on
	return d, err
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// blob adds content under its digest.
func (l *layout) blob(mediaType string, content []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(content), Size: len(content)}
	path := "blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:")
	if !slices.ContainsFunc(l.files, func(f File) bool { return f.Path == path }) {
		l.files = append(l.files, File{Path: path, Mode: 0o644, Content: content})
	}
	return d
}

// object adds a value as JSON.
func (l *layout) object(mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	return l.blob(mediaType, content), err
}
