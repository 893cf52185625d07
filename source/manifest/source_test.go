package manifest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

const namespaceYAML = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n"

// folder is a folder of manifests and a source that watches it.
type folder struct {
	t      *testing.T
	dir    string
	events chan event.Event
}

func watchFolder(t *testing.T, dir string, paths ...string) *folder {
	t.Helper()
	f := &folder{t: t, dir: dir, events: make(chan event.Event, 100)}
	if len(paths) == 0 {
		paths = []string{dir}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	s := New(Config{Paths: paths, Watch: true, Debounce: 20 * time.Millisecond})
	go func() { ended <- s.Run(ctx, func(e event.Event) { f.events <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
	f.expect("wait-for-ready")
	f.expect("resync")
	return f
}

func (f *folder) write(name, format string, args ...any) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// lines formats an event, without the folder's name.
func (f *folder) lines(e event.Event) string {
	switch e := e.(type) {
	case *event.SyncStatus:
		if e.Err != nil {
			return e.Status.String() + " " + strings.ReplaceAll(e.Err.Error(), f.dir+"/", "")
		}
		return e.Status.String()
	case *event.Update:
		var out []string
		for _, c := range e.Changes {
			switch {
			case c.Err != nil:
				out = append(out, "! "+c.Err.Error())
			case c.Object != nil:
				out = append(out, "+ "+c.Ref.String())
			default:
				out = append(out, "- "+c.Ref.String())
			}
		}
		return strings.ReplaceAll(strings.Join(out, "\n"), f.dir+"/", "")
	}
	return fmt.Sprintf("%T", e)
}

func (f *folder) expect(want string) {
	f.t.Helper()
	select {
	case e := <-f.events:
		if got := f.lines(e); got != want {
			f.t.Fatalf("event\n%s\nwant\n%s", got, want)
		}
	case <-time.After(10 * time.Second):
		f.t.Fatalf("no event, want %s", want)
	}
}

// quiet checks that earlier steps cause no event: the next event is that of a marker file.
func (f *folder) quiet() {
	f.t.Helper()
	f.write("marker.yaml", namespaceYAML, "marker")
	f.expect("+ Namespace marker")
	if err := os.Remove(filepath.Join(f.dir, "marker.yaml")); err != nil {
		f.t.Fatal(err)
	}
	f.expect("- Namespace marker")
}

func (f *folder) rename(from, to string) {
	f.t.Helper()
	if err := os.Rename(filepath.Join(f.dir, from), filepath.Join(f.dir, to)); err != nil {
		f.t.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	start := func(t *testing.T) *folder {
		dir := filepath.Join(dir, t.Name())
		f := &folder{t: t, dir: dir}
		f.write("a.yaml", namespaceYAML, "a")
		f = watchFolder(t, dir)
		f.expect("+ Namespace a")
		f.expect("in-sync")
		return f
	}
	t.Run("new file, changed file, removed file", func(t *testing.T) {
		f := start(t)
		f.write("b.yaml", namespaceYAML, "b")
		f.expect("+ Namespace b")
		f.write("b.yaml", namespaceYAML+"  labels: {k: v}\n", "b")
		f.expect("+ Namespace b")
		f.rename("b.yaml", "b.txt")
		f.expect("- Namespace b")
	})
	t.Run("an editor writes beside and renames", func(t *testing.T) {
		f := start(t)
		f.write(".a.yaml.swp", namespaceYAML, "c")
		f.rename(".a.yaml.swp", "a.yaml")
		f.expect("+ Namespace c\n- Namespace a")
	})
	t.Run("nothing new is nothing emitted", func(t *testing.T) {
		f := start(t)
		f.write("a.yaml", "# another comment\n"+namespaceYAML, "a")
		f.write("notes.txt", "not a manifest")
		f.write(".hidden/x.yaml", namespaceYAML, "hidden")
		f.quiet()
	})
	t.Run("folders in the folder", func(t *testing.T) {
		f := start(t)
		f.write("sub/deep/x.yaml", namespaceYAML, "x")
		f.expect("+ Namespace x")
		f.write("sub/deep/x.yaml", namespaceYAML, "z")
		f.expect("+ Namespace z\n- Namespace x")
		if err := os.RemoveAll(filepath.Join(f.dir, "sub")); err != nil {
			t.Fatal(err)
		}
		f.expect("- Namespace z")
	})
	t.Run("half-written", func(t *testing.T) {
		f := start(t)
		f.write("a.yaml", namespaceYAML+"---\n"+namespaceYAML, "a", "b")
		f.expect("+ Namespace b")
		f.write("a.yaml", namespaceYAML+"---\napiVersion: v1\nkind: [", "a")
		f.expect("! a.yaml:7: not valid YAML: did not find expected node content; " +
			"the document that begins on line 6 is not used; the object last read from it stays as it was until it parses")
		f.quiet()
		f.write("a.yaml", namespaceYAML+"---\n"+namespaceYAML, "a", "c")
		f.expect("+ Namespace c\n- Manifest a.yaml document 2\n- Namespace b")
	})
	t.Run("emptied, then filled", func(t *testing.T) {
		f := start(t)
		f.write("a.yaml", "")
		time.Sleep(60 * time.Millisecond)
		f.write("a.yaml", namespaceYAML, "b")
		f.expect("+ Namespace b\n- Namespace a")
		f.write("a.yaml", "")
		f.expect("- Namespace b")
	})
	t.Run("refused, then mended", func(t *testing.T) {
		f := start(t)
		f.write("a.yaml", namespaceYAML, "A")
		f.expect(`! a.yaml:4: Namespace A: metadata.name: ` +
			`must be a DNS label: at most 63 lower-case letters, digits and '-', with a letter or digit at both ends ("A")` +
			"\n- Namespace a")
		f.write("a.yaml", namespaceYAML, "a")
		f.expect("+ Namespace a\n- Namespace A")
	})
	t.Run("defined twice, then the first goes", func(t *testing.T) {
		f := start(t)
		f.write("b.yaml", namespaceYAML+"  labels: {from: b}\n", "a")
		f.expect("! b.yaml:1: Namespace a: is defined at a.yaml:1 already; this definition is ignored")
		f.rename("a.yaml", "a.off")
		f.expect("+ Namespace a\n- Manifest b.yaml:1: Namespace a")
	})
	t.Run("the folder goes and comes back", func(t *testing.T) {
		f := start(t)
		away := f.dir + ".away"
		if err := os.Rename(f.dir, away); err != nil {
			t.Fatal(err)
		}
		f.expect("in-sync stat " + f.dir + ": no such file or directory")
		if err := os.Rename(away, f.dir); err != nil {
			t.Fatal(err)
		}
		f.expect("in-sync")
		f.quiet()
	})
}

func TestWatchLinksAsInConfigMapVolumes(t *testing.T) {
	dir := t.TempDir()
	f := &folder{t: t, dir: dir}
	f.write("..1/a.yaml", namespaceYAML, "a")
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", "..data")
	link("..data/a.yaml", "a.yaml")
	f = watchFolder(t, dir)
	f.expect("+ Namespace a")
	f.expect("in-sync")
	f.write("..2/a.yaml", namespaceYAML, "b")
	link("..2", "..new")
	f.rename("..new", "..data")
	f.expect("+ Namespace b\n- Namespace a")
}

func TestWatchOneFile(t *testing.T) {
	f := &folder{t: t, dir: t.TempDir()}
	f.write("a.txt", namespaceYAML, "a")
	f = watchFolder(t, f.dir, filepath.Join(f.dir, "a.txt"))
	f.expect("+ Namespace a")
	f.expect("in-sync")
	f.write("b.yaml", namespaceYAML, "not-asked-for")
	f.write("new", namespaceYAML, "b")
	f.rename("new", "a.txt")
	f.expect("+ Namespace b\n- Namespace a")
	f.rename("a.txt", "gone")
	f.expect("in-sync stat a.txt: no such file or directory")
	f.rename("gone", "a.txt")
	f.expect("in-sync")
}

// While a folder cannot be watched, the status says so.
func TestUnwatchableFolderIsReported(t *testing.T) {
	w, err := newWatcher(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	file := filepath.Join(t.TempDir(), "f")
	w.addFolder(filepath.Join(file, "inside")) // a missing folder is not a fault
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.addFolder(filepath.Join(file, "inside"))
	if err := w.faults(); err == nil || !strings.Contains(err.Error(), "changes in "+file+"/inside are not seen: ") {
		t.Errorf("faults: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w.addFolder(filepath.Join(file, "inside"))
	if err := w.faults(); err != nil {
		t.Errorf("faults after it is gone: %v", err)
	}
}

func TestRunOnce(t *testing.T) {
	var got []string
	f := &folder{t: t, dir: "/nowhere"}
	s := New(Config{Paths: []string{Stdin}, Stdin: strings.NewReader(fmt.Sprintf(namespaceYAML+"---\nkind: [", "a"))})
	if err := s.Run(t.Context(), func(e event.Event) { got = append(got, f.lines(e)) }); err != nil {
		t.Fatal(err)
	}
	want := "wait-for-ready|resync|+ Namespace a\n! stdin:6: not valid YAML: did not find expected node content; the document that begins on line 6 is not used|in-sync"
	if strings.Join(got, "|") != want {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "|"), want)
	}
}

func TestRunRefusesBadConfig(t *testing.T) {
	for _, cfg := range []Config{{}, {Paths: []string{""}}, {Paths: []string{"/does/not/exist"}}, {Paths: []string{"."}, Debounce: -1}} {
		if err := New(cfg).Run(t.Context(), func(event.Event) {}); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}

// The emitted changes, applied one after the other, always give the content of the files.
func TestDiffsAddUpToFiles(t *testing.T) {
	s, have := sent{}, map[model.Ref]bool{}
	for _, names := range []string{"abc", "bcd", "", "x", "ax", "xa"} {
		var now []event.Change
		for _, n := range names {
			o := &model.Namespace{Name: string(n)}
			now = append(now, event.Change{Ref: o.Ref(), Object: o})
		}
		for _, c := range s.diff(now) {
			if c.Object == nil {
				delete(have, c.Ref)
			} else {
				have[c.Ref] = true
			}
		}
		if len(have) != len(names) {
			t.Errorf("after %q: have %v", names, have)
		}
	}
}
