package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
)

// serving serves an agent's socket until the test ends.
func serving(t *testing.T, s *control.Server) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "s")
	l, err := httpserver.Unix(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	s.Logger = slog.New(slog.DiscardHandler)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- httpserver.HTTP(ctx, l, s.Handler(), nil) }()
	t.Cleanup(func() { cancel(); <-ended })
	return at
}

// A file on standard output has the bytes that it has elsewhere: text alone is made safe for a terminal.
func TestFilesOnStandardOutputKeepTheirBytes(t *testing.T) {
	want, err := hex.DecodeString("d4c3b2a1020004000000000000000000000001000100000000000000000000000200000002000000" + "1bc2")
	if err != nil {
		t.Fatal(err)
	}
	socket := serving(t, &control.Server{Capture: func(context.Context, model.PodID, capture.Limits, <-chan struct{}) ([]byte, error) { return want, nil }})
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(io.Discard)
	if code := execute(t.Context(), root, []string{"capture", "prod/web", "--status-socket", socket}); code != 0 || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("exit code %d, %x, want %x", code, out.Bytes(), want)
	}
}
