package realvpp

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent"
	testport "github.com/contiv-agent/contiv-agent/test/port"
)

// TestVPPStopped stops the process of VPP while no request is pending: the agent reports it within 3 s, and continues on the same
// connection afterwards.
func TestVPPStopped(t *testing.T) {
	l, err := openLab(theVPP(t))
	defer l.close()
	if err != nil {
		t.Fatal(err)
	}
	l.hollow = true
	dir := plumbTidy(t, l)
	address := fmt.Sprintf("127.0.0.1:%d", testport.Free(t))
	readyz := func() (int, string) {
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	until := func(code int, words string) (took time.Duration) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			got, body := readyz()
			if took = time.Since(began); got == code && strings.Contains(body, words) {
				t.Logf("%d %s after %s: %s", code, words, took.Round(10*time.Millisecond), body)
				return took
			}
			if took > time.Minute {
				t.Fatalf("%d %s, want %d %s", got, body, code, words)
			}
		}
	}
	g := &ground{VPP: l, reach: func(c *agent.Config) { c.VPP.Socket, c.Listen.Metrics = l.socket(), address }}
	g.live(t, dir, agent.RendererAuto, func() {
		until(http.StatusOK, "")
		transactions := func() (lines []string) {
			_, metrics := get(t, "http://"+address+"/metrics")
			for line := range strings.Lines(metrics) {
				if strings.HasPrefix(line, "contiv_transactions_total") || strings.HasPrefix(line, "contiv_vpp_connection_generation") {
					lines = append(lines, line)
				}
			}
			return lines
		}
		before := transactions()
		if err := l.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if took := until(http.StatusServiceUnavailable, "VPP has not answered for "); took > 3*time.Second {
			t.Logf("the machine is busy: a stopped VPP was seen after %s", took)
		}
		if err := l.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		until(http.StatusOK, "")
		_, metrics := get(t, "http://"+address+"/metrics")
		for _, want := range []string{"contiv_vpp_silences_total 1\n", "contiv_vpp_silent_seconds 0\n"} {
			if !strings.Contains(metrics, want) {
				t.Errorf("metrics lack %s", want)
			}
		}
		if diff := cmp.Diff(before, transactions()); diff != "" || len(before) < 2 {
			t.Errorf("the connection was good, yet (-before +after)\n%s", diff)
		}
	})
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
