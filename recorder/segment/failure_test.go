package segment

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/recorder/record"
)

// TestLinesAreWrittenAfterAnError: a write fails for a time. No line is lost, and none is written twice.
func TestLinesAreWrittenAfterAnError(t *testing.T) {
	dir := t.TempDir()
	w, err := Open(Config{Dir: dir, Bound: MinBound, Now: func() time.Time { return time.Unix(9, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]record.Line, 300)
	for i := range lines {
		lines[i] = record.Line{Op: record.Notice, Key: "gap", Body: fmt.Appendf(nil, `{"dropped":%d}`, i)}
	}
	good := w.out
	broken, err := os.Open(os.DevNull) // read only
	if err != nil {
		t.Fatal(err)
	}
	w.out = broken
	done, err := w.Append(lines)
	if err == nil || done != 0 {
		t.Fatalf("%d lines, %v", done, err)
	}
	w.out = good
	done, err = w.Append(lines[:150])
	if err != nil || done != 150 {
		t.Fatalf("%d lines, %v", done, err)
	}
	good, w.out = w.out, broken
	if done, err = w.Append(lines[150:]); err == nil {
		t.Fatalf("%d lines", done)
	}
	w.out = good
	if done, err = w.Append(lines[150+done:]); err != nil {
		t.Fatal(done, err)
	}
	next := 0
	err = Read(dir, func(it *Item) error {
		if it.Problem != "" {
			t.Error(it.Problem)
		}
		if it.Gap == nil {
			return nil
		}
		if it.Gap.Dropped != next {
			t.Fatalf("line %d follows %d", it.Gap.Dropped, next)
		}
		next++
		return nil
	})
	if err != nil || next != len(lines) {
		t.Errorf("%d lines, %v", next, err)
	}
	if paths, _ := filepath.Glob(filepath.Join(dir, "*")); len(paths) < 2 {
		t.Errorf("no rotation: %v", paths)
	}
}
