package flags

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
)

func TestFlowsFlags(t *testing.T) {
	with := func(every time.Duration, listen, cert, key, ca string) *Flows {
		f := &Flows{every: every, folder: "/tmp"}
		f.hubble.listen, f.hubble.cert, f.hubble.key, f.hubble.ca = listen, cert, key, ca
		return f
	}
	for want, f := range map[string]*Flows{
		"needs --flows":              with(0, "127.0.0.1:0", "", "", ""),
		"need --hubble-listen":       with(time.Second, "", "x", "x", "x"),
		"need each other":            with(time.Second, "0.0.0.0:0", "x", "x", ""),
		"must be a loopback address": with(time.Second, "0.0.0.0:4244", "", "", ""),
		"certificate: open x":        with(time.Second, "0.0.0.0:4244", "x", "x", "x"),
		"at least 100ms":             with(time.Millisecond, "", "", "", ""),
	} {
		if err := f.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
	for servers, f := range map[int]*Flows{-1: with(0, "", "", "", ""), 0: with(time.Second, "", "", "", ""), 1: with(time.Second, "unix:/x", "", "", "")} {
		cfg := agent.Config{NodeName: "node-1"}
		cfg.Process.Logger = slog.New(slog.DiscardHandler)
		if err := f.Check(); err != nil {
			t.Error(err)
		}
		if err := f.Apply(&cfg, "v1"); err != nil || (cfg.Process.Flows == nil) != (servers < 0) {
			t.Errorf("%+v: %v, %v", f, cfg.Process.Flows, err)
		}
		if servers >= 0 && len(cfg.Process.Flows.Beside) != servers {
			t.Errorf("%+v: %d servers, want %d", f, len(cfg.Process.Flows.Beside), servers)
		}
	}
}
