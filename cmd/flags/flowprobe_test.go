package flags

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
)

// Flags of flows are refused with the name of the wrong one, or give a watcher, with flowprobe only if it was asked for.
func TestFlowprobeFlags(t *testing.T) {
	for _, c := range []struct{ args, refused string }{
		{"", ""},
		{"--flows 1s", ""},
		{"--flows 1s --flows-collector 192.0.2.1:4739 --flows-exporter 192.0.2.2", ""},
		{"--flows 10ms", "--flows 10ms"},
		{"--flows 1s --flows-folder=", "--flows-folder"},
		{"--flows-collector 192.0.2.1:4739 --flows-exporter 192.0.2.2", "needs --flows"},
		{"--flows 1s --flows-collector 192.0.2.1 --flows-exporter 192.0.2.2", "--flows-collector"},
		{"--flows 1s --flows-collector [fd00::1]:4739 --flows-exporter 192.0.2.2", "--flows-collector"},
		{"--flows 1s --flows-collector 0.0.0.0:4739 --flows-exporter 192.0.2.2", "--flows-collector"},
		{"--flows 1s --flows-collector 192.0.2.1:0 --flows-exporter 192.0.2.2", "--flows-collector"},
		{"--flows 1s --flows-collector 192.0.2.1:4739", "--flows-exporter"},
		{"--flows 1s --flows-exporter 192.0.2.2", "--flows-collector"},
		{"--flows 1s --flows-collector 192.0.2.1:4739 --flows-exporter fd00::1", "--flows-exporter"},
	} {
		f, fs := &Flows{}, pflag.NewFlagSet("", pflag.ContinueOnError)
		f.AddFlags(fs)
		if err := fs.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		err := f.Check()
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%q: %v", c.args, err)
		}
		if err != nil {
			continue
		}
		var cfg agent.Config
		cfg.Process.Logger = slog.New(slog.DiscardHandler)
		if err := f.Apply(&cfg, "v1"); err != nil {
			t.Error(err)
		}
		w := cfg.Process.Flows
		if (w != nil) != strings.Contains(c.args, "--flows 1s") || w != nil && (w.Probe != nil) != strings.Contains(c.args, "exporter") {
			t.Errorf("%q: %+v", c.args, w)
		}
	}
}
