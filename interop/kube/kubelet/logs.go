package kubelet

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"
)

// journal is what a container has written: its last lines.
type journal struct {
	mu    sync.Mutex
	lines []line
	first int               // number of the oldest line that is kept
	size  int               // of all lines
	open  map[string][]byte // by stream: the line that has no end yet
	moved chan struct{}     // closed when there is more
	ended bool
}

type line struct {
	at     time.Time
	stream string
	text   []byte // with the line's end
}

// journalSize is how much is kept of a container's output.
const journalSize = 4 << 20

func newJournal() *journal { return &journal{open: map[string][]byte{}, moved: make(chan struct{})} }

// stream writes to a journal.
type stream struct {
	j    *journal
	name string
}

func (j *journal) writer(name string) io.Writer { return stream{j, name} }

// Write implements io.Writer.
func (s stream) Write(b []byte) (int, error) {
	j := s.j
	j.mu.Lock()
	defer j.mu.Unlock()
	rest := append(j.open[s.name], b...)
	for {
		at := bytes.IndexByte(rest, '\n')
		if at < 0 {
			break
		}
		j.append(line{time.Now(), s.name, bytes.Clone(rest[:at+1])})
		rest = rest[at+1:]
	}
	j.open[s.name] = bytes.Clone(rest)
	return len(b), nil
}

func (j *journal) append(l line) {
	j.lines = append(j.lines, l)
	j.size += len(l.text)
	for j.size > journalSize {
		j.size -= len(j.lines[0].text)
		j.lines, j.first = j.lines[1:], j.first+1
	}
	close(j.moved)
	j.moved = make(chan struct{})
}

// finish ends the journal: a line without an end is the last.
func (j *journal) finish() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for name, rest := range j.open {
		if len(rest) > 0 {
			j.append(line{time.Now(), name, rest})
		}
	}
	j.open = map[string][]byte{}
	j.ended = true
	close(j.moved)
	j.moved = make(chan struct{})
}

// after returns the lines from a number on, the number of the next, and how to wait for more; nil: there will be none.
func (j *journal) after(n int) (lines []line, next int, more <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n = max(n, j.first)
	lines, next = j.lines[n-j.first:], j.first+len(j.lines)
	if !j.ended {
		more = j.moved
	}
	return lines, next, more
}

// logOptions are those of kubectl logs.
type logOptions struct {
	tail       *int64
	limit      *int64 // bytes
	since      time.Time
	timestamps bool
	follow     bool
	stream     string // "": all
}

// copyTo writes what the options select.
func (j *journal) copyTo(ctx context.Context, w io.Writer, flush func(), o logOptions) error {
	lines, next, more := j.after(0)
	if o.tail != nil && int64(len(lines)) > *o.tail {
		lines = lines[int64(len(lines))-*o.tail:]
	}
	left := int64(1) << 62
	if o.limit != nil {
		left = *o.limit
	}
	for {
		for _, l := range lines {
			if l.at.Before(o.since) || o.stream != "" && o.stream != l.stream {
				continue
			}
			text := l.text
			if o.timestamps {
				text = append([]byte(l.at.UTC().Format(time.RFC3339Nano)+" "), text...)
			}
			text = text[:min(int64(len(text)), left)]
			if _, err := w.Write(text); err != nil {
				return err
			}
			if left -= int64(len(text)); left <= 0 {
				return nil
			}
		}
		flush()
		if !o.follow || more == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		}
		lines, next, more = j.after(next)
	}
}
