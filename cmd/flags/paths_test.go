package flags

import (
	"os"
	"strings"
	"testing"
)

// Sockets of users other than root are in folders that no other user may write to.
func TestSocketsAreInPrivateFolders(t *testing.T) {
	t.Setenv(EnvStatusSocket, "")
	if os.Geteuid() == 0 {
		if got := StatusSocket(Auto) + " " + GRPCSocket(Auto); got != "/run/contiv-agent/agent.sock /run/contiv-agent/grpc.sock" {
			t.Error(got)
		}
	}
	t.Setenv("HOME", "/home/me")
	t.Setenv("XDG_CACHE_HOME", "")
	for runtime, want := range map[string]string{"/run/user/7": "/run/user/7/contiv-agent/x.sock", "": "/home/me/.cache/contiv-agent/x.sock", "not/absolute": "/home/me/.cache/contiv-agent/x.sock"} {
		t.Setenv("XDG_RUNTIME_DIR", runtime)
		if got := userPath("x.sock"); got != want {
			t.Errorf("XDG_RUNTIME_DIR=%q: %s, want %s", runtime, got, want)
		}
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	if got := userPath("x.sock"); got != "" || strings.HasPrefix(got, os.TempDir()) {
		t.Errorf("without a home: %q", got)
	}
}
