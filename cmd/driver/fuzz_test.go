package driver

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzDriverConfig: whatever the file of felix-driver says, the driver takes it or refuses it with the file's name.
func FuzzDriverConfig(f *testing.F) {
	f.Add("node: node-1\nlisten: none\nstatusSocket: none\njournal: none\nview: pre-dnat\nrecheck: 1m\nmaxFrame: 1024\nvpp: {sim: true}\n")
	f.Add("vpp: {socket: /run/vpp/api.sock}\ninterfaces: {uplink: eth0, overlay: vxlan0, host: tap0, hostAddresses: [10.0.0.1]}\nlog: {level: debug, format: json}\n")
	f.Add("recheck: -1h\nmaxFrame: -1\n")
	f.Add("a: &a [*a]\n<<: *a\n")
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	nothing := func(string) string { return "" }
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := Load(path, nothing)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		file.Services = servicesFile{} // they name other files
		cfg, err := file.Agent("test", log)
		if err == nil && (file.MaxFrame < 0 || file.View != "" && !strings.HasSuffix(file.View, "-dnat") || cfg.Policies.PostDNAT != (file.View != "pre-dnat")) {
			t.Errorf("%q is taken as %+v", text, file)
		}
	})
}
