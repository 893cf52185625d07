package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// kubectl runs the kubectl program with these cluster flags. The code runs it instead of using client-go: it supports all
// logins, proxies and protocols that a kubeconfig may need.
type kubectl struct {
	Kubeconfig, Context string
	apart               bool // it does not get the signals of the terminal
}

// runKubectl runs kubectl and returns its exit code, which is the container command's code if it runs one. An error means that
// kubectl could not be started.
func (k *kubectl) runKubectl(ctx context.Context, stdout, stderr io.Writer, args ...string) (int, error) {
	return k.feedKubectl(ctx, nil, stdout, stderr, args...)
}

// feedKubectl is runKubectl with a standard input.
func (k *kubectl) feedKubectl(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, args ...string) (int, error) {
	program := os.Getenv("KUBECTL")
	if program == "" {
		program = "kubectl"
	}
	if k.Context != "" {
		args = append([]string{"--context=" + k.Context}, args...)
	}
	if k.Kubeconfig != "" {
		args = append([]string{"--kubeconfig=" + k.Kubeconfig}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: k.apart}
	cmd.WaitDelay = 10 * time.Second
	said := sieve(stderr)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, said
	err := cmd.Run()
	err = errors.Join(err, said.flushLine())
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	case err != nil:
		return 0, fmt.Errorf("kubectl: %w", err)
	}
	return 0, nil
}

// readJSON runs kubectl and parses its JSON output.
func (k *kubectl) readJSON(ctx context.Context, into any, args ...string) error {
	var text, complaint bytes.Buffer
	code, err := k.runKubectl(ctx, &text, &complaint, args...)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("kubectl: %s", strings.TrimSpace(complaint.String()))
	}
	if err := json.Unmarshal(text.Bytes(), into); err != nil {
		return fmt.Errorf("kubectl: its output is not JSON: %w", err)
	}
	return nil
}

// splitter calls line with each whole line, without its end, until line fails.
type splitter struct {
	line func([]byte) error
	rest []byte
}

// Write implements io.Writer.
func (s *splitter) Write(b []byte) (int, error) {
	s.rest = append(s.rest, b...)
	for {
		line, rest, whole := bytes.Cut(s.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		s.rest = rest
		if err := s.line(line); err != nil {
			return 0, err
		}
	}
}

// flushLine calls line with an incomplete last line.
func (s *splitter) flushLine() error {
	if len(s.rest) == 0 {
		return nil
	}
	return s.line(s.rest)
}

// sieve forwards lines, except those in which kubectl repeats an exit code.
func sieve(to io.Writer) *splitter {
	return &splitter{line: func(line []byte) error {
		if bytes.HasPrefix(line, []byte("command terminated with exit code ")) {
			return nil
		}
		_, err := fmt.Fprintf(to, "%s\n", line)
		return err
	}}
}
