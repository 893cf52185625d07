package capture

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
)

// onePacket is a pcap file with a frame of 2 bytes.
var onePacket, _ = hex.DecodeString("d4c3b2a1020004000000000000000000000001000100000000000000000000000200000002000000" + "4142")

// served serves an agent's socket whose captures answer.
func served(t *testing.T, answer func(context.Context, model.PodID, capture.Limits, <-chan struct{}) ([]byte, error)) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "s")
	l, err := httpserver.Unix(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	s := &control.Server{Capture: answer, Logger: slog.New(slog.DiscardHandler)}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- httpserver.HTTP(ctx, l, s.Handler(), nil) }()
	t.Cleanup(func() { cancel(); <-ended })
	return at
}

// ran executes a command, and returns what it wrote.
func ran(ctx context.Context, cmd *cobra.Command, in string, args ...string) (stdout, stderr string, err error) {
	var out, complaint bytes.Buffer
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&complaint)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	return out.String(), complaint.String(), err
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	if e, ok := errors.AsType[*exit.Error](err); ok {
		return e.Code
	}
	return exit.Failed
}

// The command asks for the pod and the limits of its flags, and writes the answer to a file or to standard output.
func TestCaptureWritesTheFile(t *testing.T) {
	want := capture.Limits{Packets: 7, Bytes: 1500, Time: 90 * time.Second}
	socket := served(t, func(_ context.Context, pod model.PodID, l capture.Limits, _ <-chan struct{}) ([]byte, error) {
		if pod.String() != "prod/web" || l != want {
			t.Errorf("asked for %s, %+v", pod, l)
		}
		return onePacket, nil
	})
	args := []string{"prod/web", "--status-socket", socket, "--count", "7", "--bytes", "1500", "--duration", "90s"}
	if out, said, err := ran(t.Context(), New(), "", args...); out != string(onePacket) || said != "1 packets of prod/web\n" || err != nil {
		t.Errorf("%q, %q, %v", out, said, err)
	}
	file := filepath.Join(t.TempDir(), "x.pcap")
	if out, _, err := ran(t.Context(), New(), "", append(args, "-w", file)...); out != "" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if b, err := os.ReadFile(file); !bytes.Equal(b, onePacket) || err != nil {
		t.Errorf("%x, %v", b, err)
	}
}

// Ctrl-C, or the end of the input with the flag for it, end the capture, and its packets are written.
func TestCaptureStops(t *testing.T) {
	begun := make(chan struct{}, 1)
	socket := served(t, func(ctx context.Context, _ model.PodID, _ capture.Limits, stop <-chan struct{}) ([]byte, error) {
		begun <- struct{}{}
		select {
		case <-stop:
			return onePacket, nil
		case <-ctx.Done():
			return nil, errors.New("abandoned")
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if out, _, err := ran(ctx, New(), "", "prod/web", "--status-socket", socket); out != string(onePacket) || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// A program that disconnects abandons its capture.
func TestCaptureAbandoned(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	socket := served(t, func(ctx context.Context, _ model.PodID, _ capture.Limits, stop <-chan struct{}) ([]byte, error) {
		close(begun)
		select {
		case <-ctx.Done():
			close(ended)
		case <-stop:
		}
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	_, err := control.FetchCapture(ctx, socket, model.PodID{Namespace: "a", Name: "b"}, capture.Limits{Packets: 1, Bytes: 100, Time: time.Minute}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-ended
}

func TestCaptureRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "NAMESPACE/POD"},
		{"web", "NAMESPACE/POD"},
		{"prod/web/x", "NAMESPACE/POD"},
		{"a/b c/d", "one argument"},
		{"a/b --count 0", "packets"},
		{"a/b --duration 1h", "1h"},
		{"a/b --bytes 31", "bytes"},
		{"a/b --count 100000 --bytes 9000", "memory"},
	} {
		for _, cmd := range []*cobra.Command{New(), OfCluster(&kubectl.Agents{}, new(string))} {
			if _, _, err := ran(t.Context(), cmd, "", strings.Fields(c.args)...); codeOf(err) != 2 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v", c.args, err)
			}
		}
	}
	socket := served(t, func(context.Context, model.PodID, capture.Limits, <-chan struct{}) ([]byte, error) {
		return nil, capture.ErrForeign
	})
	if _, _, err := ran(t.Context(), New(), "", "a/b", "--status-socket", socket); err == nil || !strings.Contains(err.Error(), capture.ErrForeign.Error()) || codeOf(err) != 1 {
		t.Error(err)
	}
}

// The command of a cluster runs that of the pod's node with the same limits, and writes the file here.
func TestCaptureOfCluster(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sent.pcap")
	if err := os.WriteFile(file, onePacket, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "kubectl")
	script := `#!/bin/sh
case "$1 $2" in
"get pod") echo '{"spec":{"nodeName":"node-3"}}' ;;
"get pods") echo '{"items":[{"metadata":{"name":"agent-3"},"spec":{"nodeName":"node-3"},"status":{"phase":"Running"}}]}' ;;
*) echo "$@" >` + filepath.Join(dir, "asked") + `; cat >/dev/null; cat ` + file + ` ;;
esac
`
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECTL", program)
	agents := &kubectl.Agents{Namespace: "system", Selector: "a=b", Container: "agent", Program: "contiv-agent"}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // the script ends when its input does
		for _, err := os.Stat(filepath.Join(dir, "asked")); err != nil; _, err = os.Stat(filepath.Join(dir, "asked")) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	to := filepath.Join(dir, "x.pcap")
	_, said, err := ran(ctx, OfCluster(agents, new(string)), "", "prod/web", "--count", "5", "-w", to)
	b, errFile := os.ReadFile(to)
	if err != nil && !errors.Is(err, context.Canceled) || errFile != nil || !bytes.Equal(b, onePacket) || said != "1 packets of prod/web\n" {
		t.Errorf("%x, %v, %q, %v", b, errFile, said, err)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if want := "exec --stdin --namespace=system agent-3 --container=agent -- contiv-agent capture --write=- --count=5 --duration=30s --bytes=256 --until-input-ends -- prod/web\n"; string(asked) != want || err != nil {
		t.Errorf("%s, %v", asked, err)
	}
}
