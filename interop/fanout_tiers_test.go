package interop

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTiers: a real Typha, our fanout command as installed, and the real client, with TLS on both sides of the command.
// Typha is killed and restarts with other keys; at the end the command disconnects its client and ends without an error.
func TestTiers(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	serverCert, serverKey := ca.issue("typha-server", "", time.Hour)
	clientCert, clientKey := ca.issue("typha-client", "", time.Hour)
	port, metrics := fmt.Sprint(freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	secured := []string{"--port", port, "--cert", serverCert, "--key", serverKey, "--ca", ca.file, "--client-cn", "typha-client"}
	origin := startTypha(t, secured...)
	for n := range 500 {
		k, v := param(n)
		origin.put(k, v)
	}
	origin.Send(`{"status":"in-sync"}`)

	relay := start(t, "fanout", exec.Command(product(t), "fanout", "--upstream", "127.0.0.1:"+port, "--syncers", "felix",
		"--upstream-cert", clientCert, "--upstream-key", clientKey, "--upstream-ca", ca.file, "--upstream-cn", "typha-server",
		"--cert", serverCert, "--key", serverKey, "--ca", ca.file, "--client-cn", "typha-client",
		"--listen", "127.0.0.1:0", "--metrics", metrics, "--drain", "2s", "--ping", "300ms"))
	addr := relay.Line()
	ask := func(path string) (int, string) {
		resp, err := http.Get("http://" + metrics + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body) // half an answer lacks what is looked for
		return resp.StatusCode, string(body)
	}
	ready := func() error {
		if code, body := ask("/readyz"); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	}
	eventually(t, "the relay is ready", ready)
	c := startClient(t, addr, "--cert", clientCert, "--key", clientKey, "--ca", ca.file, "--server-cn", "typha-server")
	has := func(n int, value string) func() bool {
		key, _ := param(n)
		return func() bool { return c.values[key] == value }
	}
	c.until(func() bool { return c.status == "in-sync" })
	if len(c.values) != 500 {
		t.Errorf("%d keys of 500", len(c.values))
	}

	origin.Kill()
	eventually(t, "the relay serves on", ready)
	again := startTypha(t, secured...)
	for n := range 500 {
		k, v := param(n)
		if n == 7 {
			continue
		}
		if n == 8 {
			v = "changed"
		}
		again.put(k, v)
	}
	again.Send(`{"status":"in-sync"}`)
	c.until(has(8, "changed"))
	seven, _ := param(7)
	c.until(func() bool { return c.values[seven] == nil })
	if len(c.values) != 499 || len(c.gone) != 1 {
		t.Errorf("%d keys, deletes %v", len(c.values), c.gone)
	}
	time.Sleep(time.Second) // some pings
	if _, body := ask("/metrics"); !strings.Contains(body, `contiv_fanout_connections_streaming{syncer="felix"} 1`) ||
		!strings.Contains(body, `contiv_fanout_keys{syncer="felix"} 499`) || strings.Contains(body, "contiv_fanout_pong_seconds_count 0") {
		t.Errorf("metrics:\n%s", body)
	}
	if !c.Running() {
		t.Error("the client is gone")
	}
	relay.Signal(syscall.SIGTERM)
	if err := relay.Wait(); err != nil {
		t.Errorf("the relay ended with %v", err)
	}
	if err := c.Wait(); err == nil {
		t.Error("the client ended well without its server")
	}
}
