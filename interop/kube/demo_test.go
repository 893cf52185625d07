package kube

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// aloneAsRoot runs the rest of a test in a process with separate namespaces, whose network has no other run's bridge. It returns false in the first
// process, when the second has ended.
func aloneAsRoot(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return true
	}
	if err := netns.Possible(); err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), self(), "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "30m")
	cmd.Env = append(os.Environ(), inNamespace+"="+built.scratch, apart+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		t.Fatalf("in separate namespaces: %v", err)
	}
	return false
}

// TestPeople is what people do who were invited: kubectl, and kubectl contiv, on the cluster of `make run KUBE=1`.
func TestPeople(t *testing.T) {
	if !aloneAsRoot(t) {
		return
	}
	g := raise(t, "../../examples/guestbook")
	g.served(t)
	g.refused(t)
	g.answers(t)
	ask := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, code := g.kubectlAs(append([]string{"contiv"}, args...)...)
		if code != want {
			t.Errorf("kubectl contiv %q: exit code %d, want %d\n%s%s", args, code, want, stdout, stderr)
		}
		return stdout, stderr
	}
	says := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
	}
	stdout, _ := ask(0, "status", "--node", "node-2", "guestbook/frontend")
	says(stdout, "node-2", "in sync", "guestbook/frontend")
	stdout, _ = ask(0, "policy", "guestbook/redis-leader-0", "guestbook/redis-follower-0")
	says(stdout, "== node-1 (contiv-vswitch-node-1)", "== node-2 (contiv-vswitch-node-2)", "NetworkPolicy guestbook/redis")
	stdout, _ = ask(0, "trace", `{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"}`,
		`{"from":"pod:kube-system/coredns-1","to":"service:guestbook/redis-leader:6379","protocol":"TCP"}`)
	says(stdout, "service:guestbook/frontend:80 TCP: delivered", "denied: NetworkPolicy guestbook/redis isolates guestbook/redis-leader-0")
	_, stderr := ask(2, "status", "no/such")
	says(stderr, "no Service no/such")
	if strings.Contains(stderr, "command terminated") {
		t.Errorf("kubectl repeats exit codes:\n%s", stderr)
	}
}
