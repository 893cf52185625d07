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

	"github.com/contiv-agent/contiv-agent/calico/datastore/encode"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// file is one manifest as read last.
type file struct {
	path   string
	info   os.FileInfo // at the time of reading; nil if stat failed
	parsed *parsed
	hollow bool // read as empty once after it had objects; a second time confirms it
	logged bool // its warnings are logged
}

// tree holds all files of the source.
type tree struct{ files map[string]*file }

func (t *tree) sorted() []*file {
	var out []*file
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		out = append(out, t.files[path])
	}
	return out
}

func (t *tree) objectChanges() []event.Change {
	var all []*parsed
	for _, f := range t.sorted() {
		all = append(all, f.parsed)
	}
	return merge(all)
}

// cares reports whether a touched name matters: it is a configured path, a parent of one, or lies in one.
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

// scan updates the list of files, and reads those that are new, were touched, or look changed. again asks for another scan,
// because an emptied file counts only if it stays empty. The error names unreadable paths, whose known files are kept, and
// folders that cannot be watched.
func (t *tree) scan(cfg *Config, w *watcher, touched map[string]bool) (again bool, err error) {
	var visit func(string)
	if w != nil {
		visit = w.addFolder
	}
	found, err := list(cfg.Paths, visit)
	present := map[string]bool{}
	for _, path := range found {
		present[path] = true
		if t.readPath(path, cfg, touched[path]) {
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

// lost reports whether a file is missing because the file, or its configured path, is out of reach. That is an accident,
// not a deletion.
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

// readPath reads one file if it may have changed.
func (t *tree) readPath(path string, cfg *Config, touched bool) (again bool) {
	old := t.files[path]
	if path == Stdin && old != nil {
		return false // standard input has been read to its end
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
		f.parsed.keepMissing(old.parsed)
	}
	t.files[path] = f
	return false
}

// unchanged reports whether a file need not be read again: it is the same file, with the same size and modification time.
func unchanged(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// unreadable returns the content of a file that exists and cannot be read: one error.
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

// keepMissing adds the objects of the file's last reading that are now missing, if a part of the file does not parse: probably a
// program is writing it. The error says so.
func (p *parsed) keepMissing(before *parsed) {
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

// sent holds the changes that were emitted and not withdrawn.
type sent map[model.Ref]event.Change

// diff makes sent equal to now and returns the changes: new and different ones in the order of now, then removals.
func (s sent) diff(now []event.Change) []event.Change {
	var out []event.Change
	present := make(map[model.Ref]bool, len(now))
	for _, c := range now {
		present[c.Ref] = true
		before, known := s[c.Ref]
		if known && sameResult(before, c) {
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

// sameResult reports whether two changes have the same result.
func sameResult(a, b event.Change) bool {
	if (a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
		return false
	}
	return model.Equal(a.Object, b.Object) && encode.Equal(a.Keys, b.Keys)
}
