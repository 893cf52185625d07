package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/datastore"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// file is one manifest as last read.
type file struct {
	path   string
	info   os.FileInfo // as it was when read; nil if it could not be told
	parsed *parsed
	hollow bool // seen empty after it had objects; believed when seen so twice
	told   bool // its warnings were logged
}

// tree is every file of the source.
type tree struct{ files map[string]*file }

func (t *tree) sorted() []*file {
	var out []*file
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		out = append(out, t.files[path])
	}
	return out
}

func (t *tree) changes() []event.Change {
	var all []*parsed
	for _, f := range t.sorted() {
		all = append(all, f.parsed)
	}
	return merge(all)
}

// cares tells whether a touched name can matter: it is a path of the configuration, leads to one, or lies in one.
func (t *tree) cares(name string, paths []string) bool {
	if name == "" {
		return true
	}
	for _, p := range paths {
		p = filepath.Clean(p)
		if name == p || strings.HasPrefix(name, p+"/") || p == "." && !filepath.IsAbs(name) {
			return true
		}
	}
	return false
}

// scan finds out what the files are now and reads those that are new, were touched, or look changed. again asks for
// another scan later, to believe an emptied file only when it stays empty. The error tells of paths that could not be
// read, whose known files are kept, and of folders that could not be watched.
func (t *tree) scan(cfg *Config, w *watcher, touched map[string]bool) (again bool, err error) {
	var visit func(string)
	if w != nil {
		visit = w.add
	}
	found, err := list(cfg.Paths, visit)
	present := map[string]bool{}
	for _, path := range found {
		present[path] = true
		if t.read(path, cfg, touched[path]) {
			again = true
		}
	}
	for path := range t.files {
		if !present[path] && !(err != nil && lost(path, cfg.Paths)) {
			delete(t.files, path)
		}
	}
	if w != nil {
		err = errors.Join(err, w.faults())
	}
	return again, err
}

// lost tells that a file is missing because it, or the configured path it came from, is out of reach: an accident rather
// than a wish.
func lost(path string, paths []string) bool {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	for _, p := range paths {
		p = filepath.Clean(p)
		if path == p || strings.HasPrefix(path, p+"/") || p == "." && !filepath.IsAbs(path) {
			if _, err := os.Stat(p); err != nil {
				return true
			}
		}
	}
	return false
}

// read takes one file in if it may have changed.
func (t *tree) read(path string, cfg *Config, touched bool) (again bool) {
	old := t.files[path]
	if path == Stdin && old != nil {
		return false // read to its end
	}
	now, err := os.Stat(path)
	if err != nil {
		now = nil
	}
	if old != nil && !touched && !old.hollow && unchanged(old.info, now) {
		return false
	}
	data, err := readFile(path, cfg.Stdin)
	if old != nil && err == nil && len(data) == 0 && !old.hollow && len(old.parsed.entries) > 0 {
		old.hollow, old.info = true, now
		return true
	}
	f := &file{path: path, info: now}
	if err != nil {
		f.parsed = unreadable(path, err)
	} else {
		f.parsed = parse(display(path), data, cfg.Keys)
	}
	if old != nil {
		f.parsed.keep(old.parsed)
	}
	t.files[path] = f
	return false
}

// unchanged tells that a file need not be read again: it is the same file, of the same size, written at the same time.
func unchanged(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// unreadable is a file that is there and cannot be read.
func unreadable(path string, err error) *parsed {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return &parsed{entries: []entry{{
		ref:    model.Ref{Kind: model.KindManifest, Name: display(path)},
		err:    fmt.Errorf("%s: cannot be read: %w", display(path), err),
		origin: display(path), syntax: true,
	}}}
}

// keep takes over the objects of the same file as read before, if now some of it does not parse and they are missing:
// somebody is in the middle of writing. The complaint says so.
func (p *parsed) keep(before *parsed) {
	broken := slices.IndexFunc(p.entries, func(e entry) bool { return e.syntax })
	if broken < 0 {
		return
	}
	here := map[model.Ref]bool{}
	for _, e := range p.entries {
		here[e.ref] = true
	}
	kept := 0
	for _, e := range before.entries {
		if (e.object != nil || e.keys != nil) && !here[e.ref] {
			p.entries = append(p.entries, e)
			kept++
		}
	}
	switch e := &p.entries[broken]; kept {
	case 0:
	case 1:
		e.err = fmt.Errorf("%w; the object last read from it stays as it was until it parses", e.err)
	default:
		e.err = fmt.Errorf("%w; the %d objects last read from it stay as they were until it parses", e.err, kept)
	}
}

// sent is what has been emitted and not taken back.
type sent map[model.Ref]event.Change

// diff makes sent equal to now and returns the steps: what is new or different in the order of now, then what is gone.
func (s sent) diff(now []event.Change) []event.Change {
	var out []event.Change
	present := make(map[model.Ref]bool, len(now))
	for _, c := range now {
		present[c.Ref] = true
		before, known := s[c.Ref]
		if known && same(before, c) {
			continue
		}
		s[c.Ref] = c
		out = append(out, c)
	}
	var gone []event.Change
	for ref, c := range s {
		if !present[ref] {
			gone = append(gone, event.Change{Ref: ref, Origin: c.Origin})
			delete(s, ref)
		}
	}
	slices.SortFunc(gone, func(a, b event.Change) int { return a.Ref.Compare(b.Ref) })
	return append(out, gone...)
}

// same tells that two changes leave the same behind.
func same(a, b event.Change) bool {
	if (a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
		return false
	}
	x, _ := a.Keys.([]datastore.KV)
	y, _ := b.Keys.([]datastore.KV)
	return model.Equal(a.Object, b.Object) && datastore.Equal(x, y)
}
