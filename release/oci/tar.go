package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path"
	"slices"
	"strings"
	"time"
)

// File is a file or a symbolic link of an archive.
type File struct {
	Path    string // with slashes, without one at the begin
	Mode    int64  // rights of a file
	Content []byte
	Link    string // target; "": a file
}

// Compressed returns files as an archive with gzip. Everything has the given time and belongs to root.
func Compressed(files []File, at time.Time) ([]byte, error) {
	plain, err := pack(files, at)
	if err != nil {
		return nil, err
	}
	return compress(plain)
}

func compress(plain []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(plain)
	if errClose := z.Close(); err == nil {
		err = errClose
	}
	return b.Bytes(), err
}

// pack returns files, sorted and with their folders before them, as an archive.
func pack(files []File, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	folders := map[string]bool{".": true}
	files = slices.SortedFunc(slices.Values(files), func(x, y File) int { return strings.Compare(x.Path, y.Path) })
	for _, f := range files {
		if err := packFolders(w, path.Dir(f.Path), folders, at); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: f.Mode, Size: int64(len(f.Content)), ModTime: at, Format: tar.FormatUSTAR}
		if f.Link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// packFolders writes a folder and those above it that the archive does not have.
func packFolders(w *tar.Writer, dir string, known map[string]bool, at time.Time) error {
	if known[dir] {
		return nil
	}
	if err := packFolders(w, path.Dir(dir), known, at); err != nil {
		return err
	}
	known[dir] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at, Format: tar.FormatUSTAR})
}
