package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
)

// emptyLine replaces standard input by a pipe that stays open, with an empty line in it. It returns whether that was read.
func emptyLine(t *testing.T) (read func() bool) {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdin
	os.Stdin = in
	t.Cleanup(func() {
		os.Stdin = was
		in.Close()
		out.Close()
	})
	if _, err := out.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		left, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCINQ)
		return err == nil && left == 0
	}
}

// TestStopWhileReading: Ctrl-C ends a command that waits for standard input, with the exit code for it.
func TestStopWhileReading(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]int{
		"trace --manifests ../../examples/guestbook": exit.Interrupted,
		"trace --manifests -":                        exit.Interrupted,
		"plan --manifests - --node node-1":           exit.Interrupted,
		"policy --manifests - a/b":                   exit.Interrupted,
		"calc --hostname node-1":                     exit.Interrupted,
		"config put -f - --connect 127.0.0.1:1":      exit.Interrupted,
		"run --sim --once --manifests - --node node-1 --listen= --status-socket=" + filepath.Join(dir, "a"): exit.Interrupted,
		"run --sim --manifests - --node node-1 --listen= --status-socket=" + filepath.Join(dir, "b"):        exit.OK,
	} {
		t.Run(text, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			read, root := emptyLine(t), newRoot()
			var said bytes.Buffer
			root.SetOut(io.Discard)
			root.SetErr(&said)
			code := make(chan int, 1)
			go func() { code <- execute(ctx, root, strings.Fields(text)) }()
			for !read() {
				select {
				case got := <-code:
					t.Fatalf("ended with %d before it was stopped: %s", got, said.String())
				case <-time.After(time.Millisecond):
				}
			}
			cancel()
			if got := <-code; got != want {
				t.Errorf("exit code %d, want %d: %s", got, want, said.String())
			}
		})
	}
}

// TestTraceAnswersAtOnce: trace answers a line before it gets the next one.
func TestTraceAnswersAtOnce(t *testing.T) {
	questions, ask := io.Pipe()
	answers, out := io.Pipe()
	root := newRoot()
	root.SetIn(questions)
	root.SetOut(out)
	code := make(chan int, 1)
	go func() {
		code <- execute(context.Background(), root, []string{"trace", "--manifests", "../../examples/guestbook", "-o", "json"})
		out.Close()
	}()
	lines := bufio.NewScanner(answers)
	for range 3 {
		_, _ = io.WriteString(ask, `{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"}`+"\n")
		if !lines.Scan() || !strings.Contains(lines.Text(), `"verdict":"delivered"`) {
			t.Fatalf("%q %v", lines.Text(), lines.Err())
		}
	}
	ask.Close()
	if lines.Scan() {
		t.Errorf("another answer: %s", lines.Text())
	}
	if got := <-code; got != exit.OK {
		t.Errorf("exit code %d", got)
	}
}
