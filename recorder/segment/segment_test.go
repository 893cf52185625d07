package segment_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/recorder/record"
	"github.com/contiv-agent/contiv-agent/recorder/segment"
)

func open(t interface {
	Helper()
	Fatal(...any)
}, dir string, bound int64,
) *segment.Writer {
	t.Helper()
	w, err := segment.Open(segment.Config{
		Dir: dir, Bound: bound, Header: record.Header{Node: "node-1", Sources: []string{"kube"}}, Now: func() time.Time { return time.Unix(9, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// namespace is a change of a namespace with a label of some length; size 0 removes it.
func namespace(name string, size int) []record.Line {
	o := &model.Namespace{Name: name, Labels: map[string]string{"a": strings.Repeat("x", size)}}
	ch := event.Change{Ref: o.Ref(), Object: o}
	if size == 0 {
		ch.Object = nil
	}
	return record.Lines(&event.Update{Source: "kube", Changes: []event.Change{ch}})
}

// contents is what a reader finds: the objects at the end, by folding as a reader of the last file alone does, and all problems.
type contents struct {
	objects  map[string]int // name → size of its label
	problems []string
	numbers  []uint64 // of lines that are not kept
	first    string   // key of the first line
}

func contentsOf(t interface{ Fatal(...any) }, path string) contents {
	c := contents{objects: map[string]int{}}
	err := segment.Read(path, func(it *segment.Item) error {
		if it.Problem != "" {
			c.problems = append(c.problems, it.Problem)
		}
		if it.Number == 0 {
			return nil
		}
		if c.first == "" {
			c.first = it.Key
		}
		if !it.Kept {
			c.numbers = append(c.numbers, it.Number)
		}
		if it.Header != nil {
			clear(c.objects)
		}
		if up, ok := it.Event.(*event.Update); ok {
			name := up.Changes[0].Ref.Name
			if delete(c.objects, name); up.Changes[0].Object != nil {
				c.objects[name] = len(up.Changes[0].Object.(*model.Namespace).Labels["a"])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sizeOf(t interface{ Fatal(...any) }, dir string) (size int64) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, path := range paths {
		info, errStat := os.Stat(path)
		if err = errors.Join(err, errStat); err == nil {
			size += info.Size()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// TestFilesStayWithinTheBound writes random changes over several starts. After each, the files are within the bound, the last file alone has
// every object, and no line is missing between the first and the last one.
func TestFilesStayWithinTheBound(t *testing.T) {
	rotated := 0
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "j")
		if err != nil {
			rt.Fatal(err)
		}
		want := map[string]int{}
		var w *segment.Writer
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			if w == nil || rapid.IntRange(0, 9).Draw(rt, "start") == 0 {
				if w != nil {
					_ = w.Close()
				}
				w = open(rt, dir, segment.MinBound)
				want = map[string]int{}
			}
			var lines []record.Line
			for range rapid.IntRange(1, 30).Draw(rt, "lines") {
				name := fmt.Sprintf("ns-%d", rapid.IntRange(0, 9).Draw(rt, "name"))
				size := rapid.IntRange(0, 900).Draw(rt, "size")
				if want[name] = size; size == 0 {
					delete(want, name)
				}
				lines = append(lines, namespace(name, size)...)
			}
			if done, err := w.Append(lines); err != nil || done != len(lines) {
				rt.Fatalf("%d of %d lines: %v", done, len(lines), err)
			}
			size, files := w.Size()
			if real := sizeOf(rt, dir); real != size || size > segment.MinBound {
				rt.Fatalf("%d bytes in %d files, counted %d, bound %d", real, files, size, segment.MinBound)
			}
			if rapid.IntRange(0, 7).Draw(rt, "read") > 0 {
				continue
			}
			c := contentsOf(rt, dir)
			if !maps.Equal(c.objects, want) || len(c.problems) > 0 {
				rt.Fatalf("objects %v, want %v; problems %q", c.objects, want, c.problems)
			}
			for i := 1; i < len(c.numbers); i++ {
				if c.numbers[i] != c.numbers[i-1]+1 {
					rt.Fatalf("record %d follows %d", c.numbers[i], c.numbers[i-1])
				}
			}
			if c.first != "segment" {
				rt.Fatalf("begins with %q", c.first)
			}
			paths, _ := filepath.Glob(filepath.Join(dir, "*.journal"))
			if last := contentsOf(rt, paths[len(paths)-1]); !maps.Equal(last.objects, want) {
				rt.Fatalf("the last file alone: %v, want %v", last.objects, want)
			}
			if !strings.HasSuffix(paths[0], "00000001.journal") {
				rotated++
			}
		}
		_ = w.Close()
	})
	if rotated == 0 && !testing.Short() { // fewer checks may have none
		t.Error("no file was ever removed")
	}
}

// TestObjectsThatDoNotFit: the state needs more than half of the bound.
func TestObjectsThatDoNotFit(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, segment.MinBound)
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = w.Append(namespace(fmt.Sprint("ns-", n), 1000))
	}
	if !errors.Is(err, segment.ErrFull) || n < 20 || n > 40 {
		t.Errorf("after %d objects of 1,100 bytes: %v", n, err)
	}
	if size := sizeOf(t, dir); size > segment.MinBound {
		t.Errorf("%d bytes", size)
	}
	if got := contentsOf(t, dir); len(got.objects) != n-1 || len(got.problems) > 0 {
		t.Errorf("%d objects, problems %q", len(got.objects), got.problems)
	}
}

func TestFilesAreForTheUserAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	_ = open(t, dir, segment.MinBound).Close()
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "00000001.journal"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// damage is a journal of one file with ten namespaces.
func damage(t *testing.T, change func(lines []string) []string) contents {
	t.Helper()
	dir := t.TempDir()
	w := open(t, dir, segment.MinBound)
	for i := range 10 {
		if _, err := w.Append(namespace(fmt.Sprint("ns-", i), 10+i)); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	path := filepath.Join(dir, "00000001.journal")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := change(slices.Collect(strings.Lines(string(text))))
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	// The next start numbers its lines behind those that can be read.
	w = open(t, dir, segment.MinBound)
	_ = w.Close()
	return contentsOf(t, path)
}

func TestDamagedLinesAreSkippedAndNamed(t *testing.T) {
	cut := damage(t, func(l []string) []string { l[10] = l[10][:40]; return l })
	if len(cut.objects) != 9 || len(cut.problems) != 1 || !strings.Contains(cut.problems[0], "line 11: damaged: it ends early") {
		t.Errorf("a torn last line: %v, %q", cut.objects, cut.problems)
	}
	changed := damage(t, func(l []string) []string { l[3] = strings.Replace(l[3], "x", "y", 1); return l })
	if len(changed.objects) != 9 || len(changed.problems) != 1 || !strings.Contains(changed.problems[0], "line 4: damaged: the checksum differs") {
		t.Errorf("a changed line: %v, %q", changed.objects, changed.problems)
	}
	lost := damage(t, func(l []string) []string { return slices.Delete(l, 3, 6) })
	if len(lost.objects) != 7 || len(lost.problems) != 1 || !strings.Contains(lost.problems[0], "line 4: 3 records before record 7 are missing") {
		t.Errorf("lost lines: %v, %q", lost.objects, lost.problems)
	}
	headless := damage(t, func(l []string) []string { return l[1:] })
	if len(headless.objects) != 10 || len(headless.problems) != 1 || !strings.Contains(headless.problems[0], "it has no header") {
		t.Errorf("no header: %v, %q", headless.objects, headless.problems)
	}
}

func TestBoundsAndPathsThatAreWrong(t *testing.T) {
	if _, err := segment.Open(segment.Config{Dir: t.TempDir(), Bound: 5}); err == nil || !strings.Contains(err.Error(), "want at least 65536") {
		t.Error(err)
	}
	none := func(*segment.Item) error { return nil }
	if err := segment.Read(t.TempDir(), none); !errors.Is(err, segment.ErrNone) {
		t.Error(err)
	}
	if err := segment.Read(filepath.Join(t.TempDir(), "x"), none); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	dir := t.TempDir()
	l := record.HeaderLine(&record.Header{Format: 99})
	l.Number = 1
	if err := os.WriteFile(filepath.Join(dir, "1.journal"), l.AppendTo(nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := segment.Read(dir, none); err == nil || !strings.Contains(err.Error(), "format 99, want 1") {
		t.Error(err)
	}
}

// TestFilesRemovedMeanwhile: a reader does not stop at a file that a running recorder removed after the folder was listed.
func TestFilesRemovedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, segment.MinBound)
	for i := 0; ; i++ {
		if _, err := w.Append(namespace("ns", 1+i%900)); err != nil {
			t.Fatal(err)
		}
		if _, files := w.Size(); files >= 3 {
			break
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	paths, _ := filepath.Glob(filepath.Join(dir, "*"))
	slices.Sort(paths)
	var last uint64
	problems := 0
	err := segment.Read(dir, func(it *segment.Item) error {
		if it.Problem != "" {
			problems++
		}
		last = max(last, it.Number)
		if err := os.Remove(paths[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if want := contentsOf(t, paths[len(paths)-1]).numbers; err != nil || len(want) == 0 || last != want[len(want)-1] || problems != 1 {
		t.Errorf("last line %d, want %v; %d problems; %v", last, want, problems, err)
	}
}
