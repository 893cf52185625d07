// Package stdin reads standard input so that the end of a context ends the read.
//
// Invariant: a read that waits returns the context's error when the context ends.
package stdin

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Until returns a reader of r's bytes. Its reads return ctx's error once ctx ends, even while r has no input. It is not safe for concurrent use.
func Until(ctx context.Context, r io.Reader) io.Reader {
	return &reader{ctx: ctx, from: r}
}

// chunk is the result of a read.
type chunk struct {
	data []byte
	err  error
}

type reader struct {
	ctx     context.Context //nolint:containedctx // a Reader's calls have none
	from    io.Reader
	pending chan chunk // nil: no read is under way
	rest    chunk
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if len(r.rest.data) == 0 && r.rest.err == nil {
		if err := r.fetch(len(p)); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest.data)
	if r.rest.data = r.rest.data[n:]; len(r.rest.data) > 0 {
		return n, nil
	}
	return n, r.rest.err
}

// fetch reads up to that many bytes, unless the context ends.
func (r *reader) fetch(most int) error {
	if r.pending == nil {
		r.pending = make(chan chunk, 1)
		go func(to chan<- chunk) {
			buf := make([]byte, most)
			n, err := r.from.Read(buf)
			to <- chunk{buf[:n], err}
		}(r.pending)
	}
	select {
	case r.rest = <-r.pending:
		r.pending = nil
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// Prompt writes what a command waits for, if in is a terminal.
func Prompt(in io.Reader, w io.Writer, text string) {
	if isTerminal(in) {
		fmt.Fprintln(w, text)
	}
}

func isTerminal(in io.Reader) bool {
	if r, is := in.(*reader); is {
		in = r.from
	}
	f, is := in.(*os.File)
	if !is {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
