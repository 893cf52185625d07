package kube

import (
	"strings"
	"testing"
)

// TestPeople is what people do who were invited: kubectl, and kubectl contiv, on the cluster of `make run KUBE=1`.
func TestPeople(t *testing.T) {
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
	if _, stderr, code := g.kubectlAs("exec", "-n", guestbook, "client", "--", "true"); code != 127 || !strings.Contains(stderr, "as far as the API is concerned") {
		t.Errorf("a program in a Pod that has none: exit code %d, %s", code, stderr)
	}
	g.nodes[1].agent.kill()
	stdout, stderr = ask(1, "status")
	says(stdout, "== node-1 (", "== node-2 (", "== node-3 (")
	says(stderr, "no agent answers at "+g.nodes[1].status)
}
