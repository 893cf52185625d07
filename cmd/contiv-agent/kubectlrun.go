package main

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

// kubectl is the program, with what it is told of the cluster. It is run rather than rebuilt from client-go: whatever a kubeconfig needs, of
// logins, proxies and protocols, it has.
type kubectl struct{ kubeconfig, context string }

// run runs it and returns its exit code, which is that of the command in a container where it runs one; an error means that it could
// not be run.
func (k *kubectl) run(ctx context.Context, stdout, stderr io.Writer, args ...string) (int, error) {
	program := os.Getenv("KUBECTL")
	if program == "" {
		program = "kubectl"
	}
	if k.context != "" {
		args = append([]string{"--context=" + k.context}, args...)
	}
	if k.kubeconfig != "" {
		args = append([]string{"--kubeconfig=" + k.kubeconfig}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	said := &sieve{to: stderr}
	cmd.Stdout, cmd.Stderr = stdout, said
	err := cmd.Run()
	said.end()
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

// read runs it and reads the JSON it writes.
func (k *kubectl) read(ctx context.Context, into any, args ...string) error {
	var text, complaint bytes.Buffer
	code, err := k.run(ctx, &text, &complaint, args...)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("kubectl: %s", strings.TrimSpace(complaint.String()))
	}
	if err := json.Unmarshal(text.Bytes(), into); err != nil {
		return fmt.Errorf("kubectl: what it wrote is no JSON: %w", err)
	}
	return nil
}

// sieve passes on lines but those by which kubectl only repeats an exit code.
type sieve struct {
	to   io.Writer
	rest []byte
}

// Write implements io.Writer.
func (s *sieve) Write(b []byte) (int, error) {
	s.rest = append(s.rest, b...)
	for {
		line, rest, whole := bytes.Cut(s.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		s.rest = rest
		if bytes.HasPrefix(line, []byte("command terminated with exit code ")) {
			continue
		}
		if _, err := fmt.Fprintf(s.to, "%s\n", line); err != nil {
			return 0, err
		}
	}
}

// end passes on what is left without an end of line.
func (s *sieve) end() {
	if len(s.rest) > 0 {
		fmt.Fprintf(s.to, "%s\n", s.rest)
	}
}
