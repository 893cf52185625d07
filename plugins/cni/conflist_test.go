package cni_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

func TestListContent(t *testing.T) {
	text, err := cni.ListConfig{
		MTU: 1400, Socket: "/run/a.sock", IPAM: json.RawMessage(`{"type":"host-local"}`), Chain: []json.RawMessage{json.RawMessage(`{"type":"tuning"}`)},
	}.Encode()
	want := `{
  "cniVersion": "1.0.0",
  "cniVersions": [
    "0.4.0",
    "1.0.0",
    "1.1.0"
  ],
  "name": "contiv",
  "plugins": [
    {
      "type": "contiv-cni",
      "capabilities": {
        "bandwidth": true,
        "io.kubernetes.cri.pod-annotations": true,
        "portMappings": true
      },
      "socket": "/run/a.sock",
      "mtu": 1400,
      "ipam": {
        "type": "host-local"
      }
    },
    {
      "type": "tuning"
    }
  ]
}
`
	if diff := cmp.Diff(want, string(text)); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := (cni.ListConfig{IPAM: json.RawMessage(`{`)}).Encode(); err == nil {
		t.Error("a broken section is no error")
	}
}

// The list exists while the node serves, and is withdrawn only after the node has not served for a while.
func TestPublisher(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	p := &cni.Publisher{Path: filepath.Join(dir, "10-contiv.conflist"), Content: []byte("list"), Quiet: 10 * time.Second}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	away := errors.New("VPP is away")
	step := func(after time.Duration, why error, want cni.Change, file string) {
		t.Helper()
		now = now.Add(after)
		got, err := p.Update(now, why)
		text, _ := os.ReadFile(p.Path)
		if err != nil || got != want || string(text) != file {
			t.Errorf("%v, %v, file %q; want %v, %q", got, err, text, want, file)
		}
	}
	step(0, away, cni.Unchanged, "") // not written before the node serves
	step(20*time.Second, away, cni.Unchanged, "")
	step(0, nil, cni.Written, "list")
	step(0, nil, cni.Unchanged, "list")
	step(time.Second, away, cni.Unchanged, "list")
	step(9*time.Second, away, cni.Unchanged, "list")
	step(time.Second, nil, cni.Unchanged, "list") // it recovered: the time begins again
	step(time.Second, away, cni.Unchanged, "list")
	step(9*time.Second, away, cni.Unchanged, "list")
	step(time.Second, away, cni.Withdrawn, "")
	step(time.Second, away, cni.Unchanged, "")
	step(time.Second, nil, cni.Written, "list")
	if err := os.WriteFile(p.Path, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	step(time.Second, nil, cni.Written, "list")
	limited := protocol.Errorf(protocol.CodeLimited, "no path out of the node")
	step(time.Second, away, cni.Unchanged, "list")
	step(20*time.Second, limited, cni.Unchanged, "list") // pods must be deleted
	step(time.Second, away, cni.Unchanged, "list")
	for _, name := range []string{"05-other.conflist", "09-notes.txt", "20-later.conf"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if rivals, err := p.Rivals(); err != nil || !slices.Equal(rivals, []string{filepath.Join(dir, "05-other.conflist")}) {
		t.Errorf("%v, %v", rivals, err)
	}
	if got, err := p.Remove(); got != cni.Withdrawn || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 3 {
		t.Errorf("left in the folder: %v", entries)
	}
}

// Limited connectivity does not publish a node that has not served yet.
func TestPublisherLimited(t *testing.T) {
	p := &cni.Publisher{Path: filepath.Join(t.TempDir(), cni.ListName), Content: []byte("list")}
	if got, err := p.Update(time.Now(), fmt.Errorf("node: %w", protocol.Errorf(protocol.CodeLimited, "no path"))); got != cni.Unchanged || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := os.Stat(p.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the list: %v", err)
	}
}

// Run follows the state of the node by the second, logs each change once, and leaves the list when it ends.
func TestPublisherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := &cni.Publisher{Path: filepath.Join(t.TempDir(), cni.ListName), Content: []byte("list")}
		var mu sync.Mutex
		why := errors.New("VPP is away")
		set := func(to error) { mu.Lock(); defer mu.Unlock(); why = to }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.Run(ctx, func(context.Context) error { mu.Lock(); defer mu.Unlock(); return why }, slog.New(slog.NewTextHandler(&log, nil)))
		}()
		exists := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if _, err := os.Stat(p.Path); (err == nil) != want {
				t.Errorf("the list: %v", err)
			}
		}
		exists(time.Minute, false)
		set(nil)
		exists(time.Second, true)
		set(errors.New("VPP is away"))
		exists(cni.DefaultWithdraw-time.Second, true)
		exists(2*time.Second, false)
		set(nil)
		exists(time.Second, true)
		cancel()
		<-ended
		exists(time.Minute, true)
		if got := strings.Count(log.String(), "msg=\"network configuration list\""); got != 3 || !strings.Contains(log.String(), `change=withdrawn reason="VPP is away"`) {
			t.Errorf("%d lines:\n%s", got, &log)
		}
	})
}

func TestInstallPlugin(t *testing.T) {
	from, dir := filepath.Join(t.TempDir(), "contiv-cni"), filepath.Join(t.TempDir(), "bin")
	for i, content := range []string{"one", "one", "two"} {
		if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		change, err := cni.InstallPlugin(from, dir)
		text, _ := os.ReadFile(filepath.Join(dir, "contiv-cni"))
		info, statErr := os.Stat(filepath.Join(dir, "contiv-cni"))
		if err != nil || statErr != nil || (change == cni.Written) != (i != 1) || string(text) != content || info.Mode().Perm() != 0o755 {
			t.Errorf("%d: %v, %v, %q, %v", i, change, err, text, info)
		}
	}
	if _, err := cni.InstallPlugin(from+"-none", dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
