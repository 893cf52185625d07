// Package segment turns lines into the files of a folder, and the files back into lines.
//
//	00000007.journal: header ─ kept lines (the state at its beginning) ─ lines, in order
//
// Invariant: the files of a folder never exceed the bound together, and each file replays without the ones before it.
package segment

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/recorder/record"
)

// MinBound is the smallest bound.
const MinBound = 64 << 10

// Parts of the bound: the present file has at most half of it, and is closed when it has an eighth, unless its state is larger.
const (
	largestPart = 2
	usualPart   = 8
)

const suffix = ".journal"

// ErrFull means that the state alone does not fit.
var ErrFull = errors.New("the objects do not fit into half of the bound")

// Config says where a Writer writes.
type Config struct {
	Dir    string
	Bound  int64         // bytes of all files together
	Header record.Header // of the agent that starts; Begins, Kept, Synced and Format are set by the Writer
	Now    func() time.Time
}

// Writer appends lines to the last file of a folder. It is not safe for concurrent use.
type Writer struct {
	cfg    Config
	old    []file // oldest first
	last   file
	out    *os.File
	next   uint64 // number of the next line
	limit  int64  // size at which the present file is closed
	synced map[string]bool
	buf    []byte
}

// file is a file of the folder.
type file struct {
	path   string
	number uint64
	size   int64
}

// Open makes the folder, and a new file for an agent that starts. Earlier files stay as far as they fit.
func Open(cfg Config) (*Writer, error) {
	if cfg.Bound < MinBound {
		return nil, fmt.Errorf("bound of %d bytes: want at least %d", cfg.Bound, MinBound)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	files, err := listFiles(cfg.Dir)
	if err != nil {
		return nil, err
	}
	w := &Writer{cfg: cfg, old: files, next: 1, synced: map[string]bool{}}
	if n := len(files); n > 0 {
		w.last.number = files[n-1].number
		if w.next, err = lastNumber(files); err != nil {
			return nil, err
		}
		w.next++
	}
	header := w.header()
	header.Begins, header.Synced = true, false
	return w, w.begin(&header, nil, cfg.Bound/usualPart)
}

// listFiles returns the files of a folder, oldest first.
func listFiles(dir string) (out []file, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		f := file{path: path}
		if _, err := fmt.Sscanf(strings.TrimSuffix(filepath.Base(path), suffix), "%d", &f.number); err != nil {
			continue // not ours
		}
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a running recorder has removed it meanwhile
		}
		if err != nil {
			return nil, err
		}
		f.size = info.Size()
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b file) int { return cmp.Compare(a.number, b.number) })
	return out, nil
}

// lastNumber returns the largest number of a line, of the last file that has one.
func lastNumber(files []file) (last uint64, err error) {
	for i := len(files) - 1; i >= 0 && last == 0; i-- {
		err = scanLines(files[i].path, func(_, _ int64, l record.Line, damaged error) error {
			if damaged == nil {
				last = max(last, l.Number)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return last, nil
}

func (w *Writer) header() record.Header {
	h := w.cfg.Header
	h.Format, h.Synced = record.Format, true
	for _, name := range h.Sources {
		h.Synced = h.Synced && w.synced[name]
	}
	return h
}

// begin makes the next file: a header and kept lines, which copyKept writes. limit is its size at which it is closed.
func (w *Writer) begin(h *record.Header, copyKept func(io.Writer) (int64, error), limit int64) error {
	if err := w.makeRoom(limit); err != nil {
		return err
	}
	number := w.last.number + 1
	path := filepath.Join(w.cfg.Dir, fmt.Sprintf("%08d%s", number, suffix))
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	line := record.HeaderLine(h)
	line.Number, line.At = w.next, w.cfg.Now()
	text := line.AppendTo(nil)
	_, err = out.Write(text)
	size := int64(len(text))
	if err == nil && copyKept != nil {
		var kept int64
		kept, err = copyKept(out)
		size += kept
	}
	if err != nil {
		return errors.Join(err, out.Close(), os.Remove(path))
	}
	if w.out != nil {
		_ = w.out.Close() // its lines are written
	}
	if w.last.path != "" {
		w.old = append(w.old, w.last)
	}
	w.out, w.last, w.limit = out, file{path, number, size}, limit
	w.next++
	return nil
}

// makeRoom removes the oldest files until another one of that size fits.
func (w *Writer) makeRoom(size int64) error {
	total := w.last.size + size
	for _, f := range w.old {
		total += f.size
	}
	for len(w.old) > 0 && total > w.cfg.Bound {
		if err := os.Remove(w.old[0].path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		total -= w.old[0].size
		w.old = w.old[1:]
	}
	return nil
}

// Append writes lines, and numbers them. After an error the file ends with the last line that was written whole; the caller may try again
// with the lines from done on.
func (w *Writer) Append(lines []record.Line) (done int, err error) {
	begin := 0
	w.buf = w.buf[:0]
	for i := range lines {
		l := &lines[i]
		l.Number = w.next + uint64(i-begin)
		had := len(w.buf)
		w.buf = l.AppendTo(w.buf)
		if w.last.size+int64(len(w.buf)) > w.limit {
			if err := w.flush(w.buf[:had], i-begin); err != nil {
				return begin, err
			}
			if err := w.rotate(int64(len(w.buf) - had)); err != nil {
				return i, err
			}
			begin, w.buf = i, w.buf[:0]
			l.Number = w.next
			w.buf = l.AppendTo(w.buf)
		}
		w.note(l)
	}
	if err := w.flush(w.buf, len(lines)-begin); err != nil {
		return begin, err
	}
	return len(lines), nil
}

// flush writes lines.
func (w *Writer) flush(text []byte, lines int) error {
	if len(text) == 0 {
		return nil
	}
	if _, err := w.out.Write(text); err != nil {
		return errors.Join(err, w.out.Truncate(w.last.size))
	}
	w.last.size += int64(len(text))
	w.next += uint64(lines)
	return nil
}

// note records which sources were in sync.
func (w *Writer) note(l *record.Line) {
	name, isSource := strings.CutPrefix(l.Key, "source ")
	if isSource && strings.Contains(string(l.Body), `"status":"in-sync"`) {
		w.synced[name] = true
	}
	if l.Op == record.Reset {
		if e, err := record.Decode(l); err == nil {
			w.synced[record.SourceOf(e.Event)] = true
		}
	}
}

// rotate begins the next file with the state at the end of the present one. There must be room for a line of that size.
func (w *Writer) rotate(room int64) error {
	kept, size, err := fold(w.last.path)
	if err != nil {
		return err
	}
	largest := w.cfg.Bound / largestPart
	header := w.header()
	header.Kept = len(kept)
	size += 1 << 12 // the header
	if size+room > largest {
		return fmt.Errorf("%w: %d bytes of objects, bound %d", ErrFull, size+room, w.cfg.Bound)
	}
	limit := max(w.cfg.Bound/usualPart, min(2*size, largest), size+room)
	return w.begin(&header, func(to io.Writer) (int64, error) { return copyParts(to, w.last.path, kept) }, limit)
}

// Size returns the size of all files, and their number.
func (w *Writer) Size() (bytes int64, files int) {
	bytes = w.last.size
	for _, f := range w.old {
		bytes += f.size
	}
	return bytes, len(w.old) + 1
}

// Close closes the file.
func (w *Writer) Close() error { return w.out.Close() }

// part is a line's place in a file.
type part struct{ at, size int64 }

// fold returns the lines of a file that make its state, in order, and their size.
func fold(path string) (kept []part, size int64, err error) {
	state := map[string]part{}
	err = scanLines(path, func(at, n int64, l record.Line, damaged error) error {
		if damaged != nil {
			return nil // its key is not known; the reader says so
		}
		switch l.Op {
		case record.Reset:
			for key := range state {
				if strings.HasPrefix(key, l.Key+" ") {
					delete(state, key)
				}
			}
			state[l.Key] = part{at, n}
		case record.Put:
			state[l.Key] = part{at, n}
		case record.Remove:
			delete(state, l.Key)
		}
		return nil
	})
	for _, p := range state {
		kept = append(kept, p)
		size += p.size
	}
	slices.SortFunc(kept, func(a, b part) int { return cmp.Compare(a.at, b.at) })
	return kept, size, err
}

// copyParts copies parts of a file.
func copyParts(to io.Writer, path string, parts []part) (copied int64, err error) {
	in, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }() // it is only read
	out := bufio.NewWriterSize(to, 1<<18)
	for _, p := range parts {
		n, err := io.Copy(out, io.NewSectionReader(in, p.at, p.size))
		if copied += n; err != nil {
			return copied, err
		}
	}
	return copied, out.Flush()
}

// scanLines reads a file's lines, with the place of each. A last line without its newline is damaged.
func scanLines(path string, each func(at, size int64, l record.Line, damaged error) error) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it is only read
	lines := bufio.NewReaderSize(in, 1<<18)
	at := int64(0)
	for {
		text, err := lines.ReadBytes('\n')
		if len(text) > 0 {
			l, damaged := record.Line{}, fmt.Errorf("%w: it ends early", record.ErrDamaged)
			if err == nil {
				l, damaged = record.ParseLine(text[:len(text)-1])
			}
			if err := each(at, int64(len(text)), l, damaged); err != nil {
				return err
			}
			at += int64(len(text))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
