package flags

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/rcu"
)

// openPods parses flags and opens the files of the node's network.
func openPods(t *testing.T, log *strings.Builder, args ...string) (*config.Pods, error) {
	t.Helper()
	var f Pods
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.AddFlags(set)
	if err := set.Parse(append([]string{"--cni", "--cni-state", t.TempDir()}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := f.Check("node-1", false); err != nil {
		t.Fatal(err)
	}
	cfg := agent.Config{NodeName: "node-1", Listen: config.Listeners{Status: "/run/other.sock"}}
	err := f.Open(&cfg, "", time.Now(), slog.New(slog.NewTextHandler(log, nil)))
	return cfg.Pods, err
}

// The plugin is in its folder when the agent starts. The list names the sockets and folders of this agent, and is not written yet.
func TestPodsFolders(t *testing.T) {
	var log strings.Builder
	dir := t.TempDir()
	program, lists, programs := filepath.Join(dir, "program"), filepath.Join(dir, "net.d"), filepath.Join(dir, "bin")
	if err := os.WriteFile(program, []byte("plugin"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(lists, 0o700); err != nil {
		t.Fatal(err)
	}
	rival := filepath.Join(lists, "05-other.conf")
	if err := os.WriteFile(rival, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := openPods(t, &log, "--cni-conf-dir", lists, "--cni-bin-dir", programs, "--cni-program", program)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(programs, cni.ProgramName)); err != nil || string(text) != "plugin" {
		t.Errorf("the plugin is %q, %v", text, err)
	}
	var list struct {
		Plugins []struct{ Type, Socket, Spool string }
	}
	if err := json.Unmarshal(p.List.Content, &list); err != nil || list.Plugins[0].Type != cni.ProgramName || list.Plugins[0].Socket != "/run/other.sock" || list.Plugins[0].Spool != p.Spool {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := os.Stat(p.List.Path); err == nil || p.List.Path != filepath.Join(lists, cni.ListName) {
		t.Errorf("the list %s exists before the node serves", p.List.Path)
	}
	if !strings.Contains(log.String(), rival) {
		t.Errorf("the agent does not warn of %s:\n%s", rival, log.String())
	}
}

// Empty folders are left alone. A program that does not exist is an error that says what to do.
func TestPodsNoFolders(t *testing.T) {
	var log strings.Builder
	if p, err := openPods(t, &log, "--cni-conf-dir=", "--cni-bin-dir="); err != nil || p.List != nil {
		t.Errorf("%+v, %v", p, err)
	}
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := openPods(t, &log, "--cni-conf-dir=", "--cni-bin-dir", t.TempDir(), "--cni-program", missing); err == nil || !strings.Contains(err.Error(), "--cni-program") {
		t.Error(err)
	}
	if _, err := openPods(t, &log, "--cni-conf-dir=", "--cni-bin-dir", t.TempDir()); err == nil || !strings.Contains(err.Error(), cni.ProgramName) {
		t.Errorf("beside the test's program: %v", err)
	}
}

// A killed agent's value of the kernel's switch is corrected at the next start, and only while the agent may use the switch.
func TestPodsExpedite(t *testing.T) {
	var log strings.Builder
	p, err := openPods(t, &log, "--cni-conf-dir=", "--cni-bin-dir=", "--expedite-rcu=false")
	if err != nil || p.Expedite.Switch != "" {
		t.Errorf("%+v, %v", p.Expedite, err)
	}
	if p, err = openPods(t, &log, "--cni-conf-dir=", "--cni-bin-dir="); err != nil {
		t.Fatal(err)
	}
	f, usable := os.OpenFile(rcu.SwitchPath, os.O_WRONLY, 0)
	if usable == nil {
		_ = f.Close() // nothing was written
	}
	if (p.Expedite.Switch != "") != (usable == nil) || strings.Contains(log.String(), "as slowly") != (usable != nil) {
		t.Errorf("%+v, and the switch: %v\n%s", p.Expedite, usable, log.String())
	}
}

// cleanup removes the files that run writes.
func TestCNIFiles(t *testing.T) {
	both, none := CNIFolders{"/a", "/b"}, CNIFolders{}
	if got := strings.Join(both.Files(), " "); got != "/a/10-contiv.conflist /b/contiv-cni" || len(none.Files()) != 0 {
		t.Errorf("%s, %v", got, none.Files())
	}
}

// A flag of the node's network that --cni alone makes effective is an error without it.
func TestPodsFlagsNeedCNI(t *testing.T) {
	for _, arg := range []string{"--cni-state=/x", "--link-mtu=1500", "--pod-interface=tap", "--expedite-rcu=false", "--cni-conf-dir=", "--cni-bin-dir=/x", "--cni-program=/x", "--node-to-node=direct", "--node-uplink=eth1", "--node-nic=eth1", "--nic-check=192.0.2.1:6443", "--nic-confirm-within=1s", "--clean-when-deleted=a/b/c", "--clean-when-deleted=", ""} {
		var f Pods
		set := pflag.NewFlagSet("run", pflag.ContinueOnError)
		f.AddFlags(set)
		if arg != "" {
			if err := set.Parse([]string{arg}); err != nil {
				t.Fatal(err)
			}
		}
		name, _, _ := strings.Cut(arg, "=")
		if err := f.Check("node-1", false); (err != nil) != (arg != "" && arg != "--clean-when-deleted=") || err != nil && err.Error() != name+": needs --cni" {
			t.Errorf("%q: %v", arg, err)
		}
	}
}

// The uplink must exist, and must not be a link that the kernel uses.
func TestNodeUplink(t *testing.T) {
	for want, args := range map[string][]string{
		"must be vxlan or direct":                 {"--node-to-node=ipip"},
		`--node-nic "": direct needs one of both`: {"--node-to-node=direct"},
		"nothing else has one":                    {"--node-uplink=eth1"},
		"direct needs one of both":                {"--node-to-node=direct", "--node-uplink=lo", "--node-nic=lo"},
		"--node-nic none":                         {"--node-to-node=direct", "--node-nic=none"},
		"--nic-check: needs --node-nic":           {"--node-to-node=direct", "--node-uplink=lo", "--nic-check=192.0.2.1:6443"},
		"--nic-confirm-within: needs --node-nic":  {"--node-to-node=direct", "--node-uplink=lo", "--nic-confirm-within=1m"},
		"--nic-confirm-within 0s":                 {"--node-to-node=direct", "--node-nic=lo", "--nic-confirm-within=0s"},
		"--node-uplink none":                      {"--node-to-node=direct", "--node-uplink=none"},
		"the link has the address 127.":           {"--node-to-node=direct", "--node-uplink=lo"},
		"":                                        {"--node-to-node=direct", "--node-uplink=vpp:GigabitEthernet0/8/0"},
	} {
		var f Pods
		set := pflag.NewFlagSet("run", pflag.ContinueOnError)
		f.AddFlags(set)
		if err := set.Parse(append([]string{"--cni"}, args...)); err != nil {
			t.Fatal(err)
		}
		if err := f.Check("node-1", false); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// auto takes taps only if VPP's devices can be opened, and looks again for each pod.
func TestPodInterface(t *testing.T) {
	var f Pods
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.AddFlags(set)
	device := filepath.Join(t.TempDir(), "vhost-net")
	devices := []string{os.DevNull, device}
	var log strings.Builder
	kindOf := func(flag string) func() string {
		if err := set.Parse([]string{"--cni", "--pod-interface", flag}); err != nil {
			t.Fatal(err)
		}
		if err := f.Check("node-1", false); err != nil {
			t.Fatal(err)
		}
		return f.prefer(devices, slog.New(slog.NewTextHandler(&log, nil)))
	}
	for _, kind := range []string{"veth", "tap"} {
		if is := kindOf(kind)(); is != kind || log.Len() > 0 {
			t.Errorf("%s is %s\n%s", kind, is, log.String())
		}
	}
	auto := kindOf("auto")
	if is := auto(); is != "veth" || !strings.Contains(log.String(), "kind=veth") || !strings.Contains(log.String(), device) {
		t.Errorf("without the device auto is %s\n%s", is, log.String())
	}
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if is := auto(); is != "tap" {
		t.Errorf("with the device auto is %s", is)
	}
	f.kind = "tun"
	if err := f.Check("node-1", false); err == nil || !strings.Contains(err.Error(), "must be veth, tap or auto") {
		t.Error(err)
	}
}
