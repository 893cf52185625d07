package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/contiv-agent/contiv-agent/recorder/record"
)

// ErrNone means that a path has no journal.
var ErrNone = errors.New("no journal")

// Item is a line of a journal, or a problem of one.
type Item struct {
	record.Entry
	Kept bool // the line is part of the state at the beginning of a file
	// Problem says what is damaged or missing before this line, or in its place: then the Entry is zero.
	Problem string
}

// Read calls each for the lines of a file, or of all files of a folder, in order. Damaged lines are problems, not errors.
func Read(path string, each func(*Item) error) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	files := []file{{path: path}}
	if info.IsDir() {
		if files, err = listFiles(path); err != nil {
			return err
		}
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: %w: want files named *%s", path, ErrNone, suffix)
	}
	r := reader{each: each}
	for i, f := range files {
		err := r.readFile(f.path)
		if err != nil && (!errors.Is(err, fs.ErrNotExist) || i == len(files)-1) { // a running recorder removes the oldest files
			return err
		}
	}
	return nil
}

// reader checks the order of lines.
type reader struct {
	each func(*Item) error
	next uint64 // number of the next line; 0: any
	kept int    // lines of the state that follow
	bad  uint64 // damaged lines since the last good one, which its number counts
}

func (r *reader) readFile(path string) error {
	line, first := 0, true
	r.kept = 0
	return scanLines(path, func(_, _ int64, l record.Line, damaged error) error {
		line++
		e, err := record.Entry{}, damaged
		if err == nil {
			e, err = record.Decode(&l)
		}
		if err == nil && e.Header != nil && e.Header.Format != record.Format {
			return fmt.Errorf("%s: format %d, want %d", path, e.Header.Format, record.Format)
		}
		it := Item{Entry: e, Kept: r.kept > 0}
		switch {
		case err != nil:
			it = Item{Problem: fmt.Sprintf("%s: line %d: %v", path, line, err)}
		case first && e.Header == nil:
			it.Problem = path + ": it has no header, so its state at the beginning is not known"
		}
		first = false
		if r.kept > 0 {
			r.kept--
			return r.each(&it)
		}
		if err == nil {
			if r.next != 0 && l.Number > r.next+r.bad {
				if err := r.each(&Item{Problem: fmt.Sprintf("%s: line %d: %d records before record %d are missing", path, line, l.Number-r.next-r.bad, l.Number)}); err != nil {
					return err
				}
			}
			r.next, r.bad = l.Number+1, 0
		} else {
			r.bad++
		}
		if e.Header != nil {
			r.kept = e.Header.Kept
		}
		return r.each(&it)
	})
}
