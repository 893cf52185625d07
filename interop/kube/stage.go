package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// prefixed writes whole lines, each behind a prefix.
type prefixed struct {
	out    io.Writer
	prefix string
	rest   []byte
}

// Write implements io.Writer.
func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if _, err := fmt.Fprintf(p.out, "%s%s\n", p.prefix, line); err != nil {
			return 0, err
		}
		p.rest = rest
	}
}

// stage is what a test is to its helpers, for a program.
type stage struct {
	ctx context.Context // of all that is on it
	out io.Writer

	mu     sync.Mutex
	undo   []func()
	failed bool
}

// collapse is the panic by which Fatalf ends what is performed.
type collapse struct{ why error }

// perform does something, and then undoes what was said to Cleanup, the last first.
func (s *stage) perform(do func(*stage)) (err error) {
	defer func() {
		for at := len(s.undo) - 1; at >= 0; at-- {
			s.undo[at]()
		}
	}()
	defer func() {
		switch over := recover().(type) {
		case nil:
		case collapse:
			err, s.failed = over.why, s.ctx.Err() == nil
		default:
			panic(over)
		}
	}()
	do(s)
	return nil
}

func (s *stage) Helper() {}

func (s *stage) Context() context.Context { return s.ctx }

func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "contiv-kube-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.Errorf("%v", err)
		}
	})
	return dir
}

func (s *stage) Cleanup(f func()) { s.undo = append(s.undo, f) }

func (s *stage) Failed() bool { return s.failed }

func (s *stage) Logf(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *stage) Errorf(format string, args ...any) { s.Logf(format, args...) }

func (s *stage) Fatal(args ...any) { panic(collapse{errors.New(fmt.Sprint(args...))}) }

func (s *stage) Fatalf(format string, args ...any) { panic(collapse{fmt.Errorf(format, args...)}) }
