package driver

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
)

func TestDriverConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := map[string]string{}
	load := func(text string) (agent.Config, error) {
		f, err := Load(write(text), func(name string) string { return env[name] })
		if err != nil {
			return agent.Config{}, err
		}
		return f.Agent("test", slog.New(slog.DiscardHandler))
	}
	// The manual's file can be loaded, and has the defaults.
	manual, plain := "", ""
	for line := range strings.SplitSeq(Help, "\n") {
		if rest, is := strings.CutPrefix(line, "    "); is {
			manual += rest + "\n"
		}
	}
	var sample []string
	for line := range strings.SplitSeq(manual, "\n") {
		if key := strings.TrimLeft(line, " "); len(line)-len(key) <= 2 && strings.Contains(key, ":") {
			if at := strings.Index(key, "  "); at > 0 { // the rest is an explanation
				line = line[:len(line)-len(key)+at]
			}
			sample = append(sample, line)
		}
	}
	shown, err := load(strings.Join(sample, "\n"))
	if err != nil {
		t.Fatalf("%v in\n%s", err, strings.Join(sample, "\n"))
	}
	defaults, err := load(plain)
	if err != nil {
		t.Fatal(err)
	}
	if shown.NodeName != "worker-7" || shown.VPP.Socket != defaults.VPP.Socket || shown.Listen.Metrics != defaults.Listen.Metrics || shown.Policies.PostDNAT != defaults.Policies.PostDNAT || !defaults.Policies.PostDNAT || !defaults.Services.Off {
		t.Errorf("shown %+v, defaults %+v", shown, defaults)
	}
	for _, c := range []struct {
		text, err string
		ok        func(agent.Config) bool
	}{
		{"view: pre-dnat", "", func(c agent.Config) bool { return !c.Policies.PostDNAT && c.Services.Off }},
		{"services: {manifests: [.]}", "", func(c agent.Config) bool { return !c.Policies.PostDNAT && !c.Services.Off && len(c.Sources) == 1 }},
		{"services: {manifests: [.]}\nview: post-dnat", "", func(c agent.Config) bool { return c.Policies.PostDNAT && !c.Services.Off }},
		{"interfaces: {uplink: a, overlay: b, host: c}", "", func(c agent.Config) bool {
			return c.Override.Uplink == "a" && c.Override.Overlay == "b" && c.Override.Host == "c"
		}},
		{"listen: none\nstatusSocket: none\njournal: none\nrecheck: 1m", "", func(c agent.Config) bool {
			return c.Listen.Metrics == "" && c.Listen.Status == "" && c.VPPAgent.Journal == "" && c.VPPAgent.Recheck == time.Minute
		}},
		{"view: sideways", "view \"sideways\": must be post-dnat or pre-dnat", nil},
		{"recheck: often", "recheck: ", nil},
		{"maxFrame: -1", "maxFrame -1", nil},
	} {
		got, err := load(c.text)
		if c.err == "" && (err != nil || !c.ok(got)) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %+v, %v", c.text, got, err)
		}
	}
	env[EnvSocket], env[EnvSim], env[EnvStatus], env[EnvListen] = "/s", "1", "/t", "none"
	f, err := Load(write("vpp: {socket: /other}"), func(name string) string { return env[name] })
	if err != nil || f.VPP != (vppFile{"/s", true}) || f.Status != "/t" || f.Listen != "" {
		t.Errorf("environment: %+v, %v", f, err)
	}
	env[EnvSim] = "maybe"
	if _, err := load(""); err == nil || !strings.Contains(err.Error(), EnvSim+"=maybe") {
		t.Error(err)
	}
}
