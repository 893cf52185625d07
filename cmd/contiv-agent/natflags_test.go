package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/cmd/configfile"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
)

// natConfig returns the NAT table configuration of a command line and an optional file.
func natConfig(t *testing.T, file string, args ...string) (nat44.Config, error) {
	t.Helper()
	var f flags.Agent
	cmd := newRun()
	if err := cmd.Flags().Parse(args); err != nil {
		t.Fatal(err)
	}
	if file != "" {
		path := filepath.Join(t.TempDir(), "agent.yaml")
		if err := os.WriteFile(path, []byte("apiVersion: agent.contiv.io/v1alpha1\nkind: AgentConfiguration\n"+file), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (&configfile.File{Path: path, Kind: configfile.AgentKind, Blank: newRun}).Apply(cmd.Flags()); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Apply(flags.Settings(cmd.Flags())); err != nil {
		t.Fatal(err)
	}
	cfg, err := f.Config()
	if _, given := flags.Settings(cmd.Flags())["nat-pod-share"]; !given && cfg.NATTable.PodShare != 25 {
		t.Errorf("share of a pod: %d", cfg.NATTable.PodShare)
	}
	return cfg.Services.Renderer.NAT44, err
}

// TestNATTableFlags: the defaults are the renderer's; a file and the command line set the same values.
func TestNATTableFlags(t *testing.T) {
	for _, c := range []struct {
		name, file string
		args       []string
		want       [5]uint32
	}{
		{"defaults", "", nil, [5]uint32{0, 60, 7440, 120, 30}},
		{"flags", "", []string{
			"--nat-sessions=200000", "--nat-timeout-udp=30s", "--nat-timeout-tcp-established=24h", "--nat-timeout-tcp-transitory=1m", "--nat-timeout-icmp=5s",
		}, [5]uint32{200000, 30, 86400, 60, 5}},
		{
			"file", "natSessions: 200000\nnatTimeoutUDP: 30s\nnatTimeoutTCPEstablished: 24h\nnatTimeoutTCPTransitory: 1m\nnatTimeoutICMP: 5s\n",
			[]string{"--nat-timeout-udp=45s"},
			[5]uint32{200000, 45, 86400, 60, 5},
		},
	} {
		got, err := natConfig(t, c.file, c.args...)
		have := [5]uint32{got.Sessions, got.TimeoutUDP, got.TimeoutTCPEstablished, got.TimeoutTCPTransitory, got.TimeoutICMP}
		if err != nil || have != c.want {
			t.Errorf("%s: %v, %v; want %v", c.name, have, err, c.want)
		}
	}
}

func TestNATTableFlagsAreValidated(t *testing.T) {
	for arg, want := range map[string]string{
		"--nat-pod-share=0":                        "--nat-pod-share 0: must be 1 to 100",
		"--nat-pod-share=101":                      "--nat-pod-share 101: must be 1 to 100",
		"--nat-timeout-udp=0s":                     "--nat-timeout-udp 0s: must be whole seconds, from 1s to 168h0m0s",
		"--nat-timeout-icmp=1500ms":                "--nat-timeout-icmp 1.5s: must be whole seconds",
		"--nat-timeout-tcp-established=169h":       "--nat-timeout-tcp-established 169h0m0s: must be",
		"--nat-timeout-tcp-transitory=-1s":         "--nat-timeout-tcp-transitory -1s: must be",
		"--nat-timeout-tcp-established=106751991s": "--nat-timeout-tcp-established 29653h19m51s: must be",
	} {
		if _, err := natConfig(t, "", arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}
