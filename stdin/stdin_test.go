package stdin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// TestUntilHasAllBytes: the bytes and the error are those of the reader.
func TestUntilHasAllBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		from := io.Reader(strings.NewReader(text))
		if rapid.Bool().Draw(t, "byte by byte") {
			from = iotest.OneByteReader(from)
		}
		if rapid.Bool().Draw(t, "ends with data") {
			from = iotest.DataErrReader(from)
		}
		broken := errors.New("broken")
		if rapid.Bool().Draw(t, "breaks") {
			from = io.MultiReader(from, iotest.ErrReader(broken))
		} else {
			broken = nil
		}
		got, err := io.ReadAll(Until(context.Background(), from))
		if string(got) != text || !errors.Is(err, broken) {
			t.Fatalf("%q and %v, want %q and %v", got, err, text, broken)
		}
	})
}

// TestUntilTheContextEnds: a read that waits for input ends with the context, and later reads fail.
func TestUntilTheContextEnds(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(context.Background())
	r := Until(ctx, in)
	go func() {
		_, _ = out.Write([]byte("first"))
		cancel()
	}()
	got, err := io.ReadAll(r)
	if !errors.Is(err, context.Canceled) || string(got) != "first" && len(got) > 0 {
		t.Errorf("%q and %v", got, err)
	}
	if n, err := r.Read(make([]byte, 8)); n > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("afterwards %d bytes and %v", n, err)
	}
}

// TestPrompt: a person at a terminal gets a prompt; a pipe, a file and a device that is none do not.
func TestPrompt(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, c := range []struct {
		in   io.Reader
		want string
	}{{terminal, "questions, please\n"}, {null, ""}, {strings.NewReader(""), ""}} {
		for _, in := range []io.Reader{c.in, Until(context.Background(), c.in)} {
			var out bytes.Buffer
			if Prompt(in, &out, "questions, please"); out.String() != c.want {
				t.Errorf("%T: %q, want %q", c.in, out.String(), c.want)
			}
		}
	}
}
