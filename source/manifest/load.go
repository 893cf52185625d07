package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/stdin"
)

// Stdin is the path of standard input.
const Stdin = "-"

// maxFile bounds a file, in bytes: larger ones are not manifests.
const maxFile = 256 << 20

// Load reads all paths once: folders, files, and "-" for standard input. In folders it reads *.yaml, *.yml and *.json,
// recursively, and nothing whose name starts with a dot. It returns one change per object, and one refused change per
// unusable piece, in the order of sorted paths and of documents in them. The error names missing and unreadable paths; the
// changes are then those of the other paths.
func Load(paths ...string) ([]event.Change, error) { return LoadUntil(context.Background(), paths...) }

// LoadUntil is Load until ctx ends: then a read of standard input ends with ctx's error.
func LoadUntil(ctx context.Context, paths ...string) ([]event.Change, error) {
	in := stdin.Until(ctx, os.Stdin)
	files, err := list(paths, nil)
	var read []*parsed
	for _, f := range files {
		data, ferr := readFile(f, in)
		if ferr != nil {
			err = errors.Join(err, ferr)
			continue
		}
		read = append(read, parse(display(f), data, false))
	}
	return merge(read), err
}

// Parse reads manifests that are no file. name stands for it in errors.
func Parse(name string, text []byte) []event.Change {
	return merge([]*parsed{parse(name, text, false)})
}

func display(path string) string {
	if path == Stdin {
		return "stdin"
	}
	return path
}

// list returns the files of paths, sorted and without duplicates. It calls visit for each folder before reading it.
func list(paths []string, visit func(folder string)) ([]string, error) {
	var files []string
	var errs []error
	for _, p := range paths {
		if p == Stdin {
			files = append(files, p)
			continue
		}
		info, err := os.Stat(p)
		switch {
		case err != nil:
			errs = append(errs, err)
		case info.IsDir():
			found, err := listFolder(filepath.Clean(p), visit)
			files = append(files, found...)
			errs = append(errs, err)
		default:
			files = append(files, filepath.Clean(p))
		}
	}
	slices.Sort(files)
	return slices.Compact(files), errors.Join(errs...)
}

// listFolder returns the manifests in a folder and its subfolders. It follows links to files (a ConfigMap volume consists
// of them), but not links to folders, which may form a cycle.
func listFolder(folder string, visit func(string)) ([]string, error) {
	if visit != nil {
		visit(folder)
	}
	names, err := os.ReadDir(folder)
	errs := []error{err}
	var files []string
	for _, e := range names {
		path := filepath.Join(folder, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			found, err := listFolder(path, visit)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil // removed while listing
			}
			files, errs = append(files, found...), append(errs, err)
		case isManifest(e.Name()):
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				files = append(files, path)
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return files, errors.Join(errs...)
}

func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

func readFile(path string, stdin io.Reader) ([]byte, error) {
	r := stdin
	if path != Stdin {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", display(path), err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("read %s: larger than %d bytes", display(path), maxFile)
	}
	return data, nil
}

// merge joins the changes of all files, in their order. The first definition of an object counts. The second is refused
// under a separate name, so that its refusal does not withdraw the first.
func merge(files []*parsed) []event.Change {
	var out []event.Change
	first := map[model.Ref]string{}
	for _, f := range files {
		for i := range f.entries {
			e := &f.entries[i]
			origin, again := first[e.ref]
			if !again {
				first[e.ref] = e.origin
				out = append(out, event.Change{Ref: e.ref, Object: e.object, Err: e.err, Origin: e.origin, Keys: e.keys})
				continue
			}
			out = append(out, event.Change{
				Ref:    model.Ref{Kind: model.KindManifest, Name: e.origin + ": " + e.ref.String()},
				Err:    fmt.Errorf("%s: %s: is defined at %s already; this definition is ignored", e.origin, e.ref, origin),
				Origin: e.origin,
			})
		}
	}
	return out
}
