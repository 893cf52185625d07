package flags

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent/cleanup"
	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// cleanupConfig parses flags of cleanup.
func cleanupConfig(t *testing.T, args ...string) cleanup.Config {
	t.Helper()
	var f Cleanup
	set := pflag.NewFlagSet("cleanup", pflag.ContinueOnError)
	f.AddFlags(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f.Config()
}

// TestCleanupKnowsTheFiles: cleanup --node removes every file that run makes in its folders, also those of an agent that was killed while it wrote, and no other.
func TestCleanupKnowsTheFiles(t *testing.T) {
	var log strings.Builder
	dir := t.TempDir()
	in := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	plugin := in("program")
	if err := os.WriteFile(plugin, []byte("plugin"), 0o600); err != nil {
		t.Fatal(err)
	}
	folders := []string{"--cni-state", in("state"), "--cni-conf-dir", in("net.d"), "--cni-bin-dir", in("bin")}
	p, err := openPods(t, &log, append(folders, "--cni-program", plugin)...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.List.Update(time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	a := protocol.Attachment{ContainerID: "c", IfName: "eth0"}
	if err := (protocol.Spool{Dir: p.Spool}).Record(protocol.Request{Attachment: a}); err != nil {
		t.Fatal(err)
	}
	half := func(folder, name string) string {
		f, err := os.CreateTemp(in(folder), name)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		return f.Name()
	}
	half("net.d", "."+cni.ListName+".*.tmp")
	half("bin", "."+cni.ProgramName+".*.tmp")
	half("state", ".nic.json.*.tmp")
	half("state", "attachments.db.damaged-*")
	if err := os.Mkdir(in("run"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"journal.new-*", ".journal.*.tmp", "journal.counts.damaged-*", ".journal.quarantine.*.tmp"} {
		half("run", name)
	}
	for _, name := range []string{"journal.counts", "journal.quarantine"} {
		if err := os.WriteFile(in("run", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	foreign := []string{half("run", "mine-*"), half("state", "mine-*"), half("net.d", "10-contiv.conflist.mine-*"), half("bin", "contiv-cni.mine-*"), plugin}
	cfg := cleanupConfig(t, append(folders, "--node", "--journal", in("run/journal"), "--status-socket", in("run/agent.sock"))...)
	removed := cfg.Files
	for _, p := range cfg.Node.Patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			t.Error(err)
		}
		removed = append(removed, found...)
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		under := slices.ContainsFunc(removed, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") })
		if err == nil && !d.IsDir() && under == slices.Contains(foreign, path) {
			t.Errorf("%s is removed: %t", path, under)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
