package kubeproxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/poll"
	"github.com/contiv-agent/contiv-agent/test/port"
	"github.com/contiv-agent/contiv-agent/test/samples"
)

// textBuffer is a log that can be read while it is written.
type textBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *textBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *textBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// clinic is a Health with a fake clock.
type clinic struct {
	*Health
	t   *testing.T
	now time.Time
}

func newClinic(t *testing.T) *clinic {
	m := NewMetrics([]string{familyIPv4})
	c := &clinic{t: t, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	c.Health = &Health{
		node: "node-1", metrics: m, reopen: time.Millisecond, failed: true,
		now: func() time.Time { return c.now },
	}
	return c
}

func (c *clinic) pass(d time.Duration) { c.now = c.now.Add(d) }

func (c *clinic) get(path string) string {
	c.t.Helper()
	rec := httptest.NewRecorder()
	c.handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	if h := rec.Header(); h.Get("Content-Type") != "application/json" || h.Get("X-Content-Type-Options") != "nosniff" {
		c.t.Errorf("%s: headers %v", path, h)
	}
	return http.StatusText(rec.Code) + " " + strings.TrimSpace(rec.Body.String())
}

// is checks the states of /healthz and /livez.
func (c *clinic) is(when string, healthz, livez bool) {
	c.t.Helper()
	for path, want := range map[string]bool{"/healthz": healthz, "/livez": livez} {
		if got := c.get(path); strings.HasPrefix(got, "OK ") != want {
			c.t.Errorf("%s: %s says %s", when, path, got)
		}
	}
}

func nodeChange(n *model.Node) []event.Change {
	ch := event.Change{Ref: model.Ref{Kind: model.KindNode, Name: "node-1"}}
	if n != nil {
		ch.Object = n
	}
	return []event.Change{ch}
}

// all passes changes through the loop to VPP.
func (c *clinic) all(changes []event.Change) {
	c.bring(changes)
	for range changes {
		c.Took()
	}
	c.Committed(&event.Committed{})
	c.Idle(true)
}

func TestProxyHealthOverTime(t *testing.T) {
	c := newClinic(t)
	web := []event.Change{{Ref: model.Ref{Kind: model.KindService, Namespace: "default", Name: "web"}}}
	c.is("nothing heard of", false, true)
	c.bring(nodeChange(&model.Node{Name: "node-1"}))
	c.Took()
	c.pass(time.Hour)
	c.Idle(false)
	c.is("starting up for an hour", false, true)
	c.VPP(true)
	c.Committed(&event.Committed{})
	c.Idle(true)
	c.is("first sync", true, true)
	c.pass(time.Hour)
	c.is("nothing happens", true, true)

	c.bring(web)
	c.pass(stuckAfter - time.Second)
	c.is("not late yet", true, true)
	c.bring(web)
	c.Idle(true) // about earlier changes: the loop has not processed these
	c.pass(time.Second)
	c.is("a change that the loop does not take", false, false)
	c.Took()
	c.Took()
	c.Idle(true)
	c.is("done", true, true)

	c.bring(web)
	c.Took()
	c.pass(stuckAfter)
	c.is("VPP does not answer", false, false)
	c.Committed(&event.Committed{Err: errors.New("disconnected")})
	c.Idle(true)
	c.is("the transaction was lost", false, false)
	c.Committed(&event.Committed{})
	c.Idle(true)
	c.is("and repeated", true, true)

	c.VPP(false)
	c.Idle(true)
	c.pass(stuckAfter - time.Second)
	c.is("VPP is away for a moment", true, true)
	c.pass(time.Second)
	c.is("VPP is away", false, false)
	c.VPP(true)
	c.Idle(true)
	c.is("VPP is there, and empty", false, false)
	c.Committed(&event.Committed{})
	c.Idle(true)
	c.is("and repaired", true, true)
	c.VPP(false)
	c.Committed(&event.Committed{}) // the repair may be reported before the connection is
	c.Idle(true)
	c.VPP(true)
	c.Idle(true)
	c.pass(time.Hour)
	c.is("repaired before the connection is reported", true, true)

	c.all(nodeChange(&model.Node{Name: "node-1", Leaving: true}))
	c.is("the node is to go", false, true)
	c.all(nodeChange(&model.Node{Name: "node-1"}))
	c.all([]event.Change{{Ref: model.Ref{Kind: model.KindNode, Name: "node-2"}}})
	c.is("it stays; another goes", true, true)
	c.all([]event.Change{{Ref: model.Ref{Kind: model.KindNode, Name: "node-1"}, Err: errors.New("no address")}})
	c.is("what is said of it is wrong", true, true)
	c.all(nodeChange(nil))
	c.is("there is no such node", false, true)
	r := prometheus.NewRegistry()
	r.MustRegister(c.metrics.healthz, c.metrics.livez)
	for line, want := range map[string]float64{
		`kubeproxy_proxy_healthz_total{code="200"}`: 10, `kubeproxy_proxy_healthz_total{code="503"}`: 9,
		`kubeproxy_proxy_livez_total{code="200"}`: 14, `kubeproxy_proxy_livez_total{code="503"}`: 5,
	} {
		if got := samples.Read(t, r)[line]; got != want {
			t.Errorf("%s is %v, want %v", line, got, want)
		}
	}
}

// TestProxyHealthBodies: kube-proxy v1.36's fields, in its order. While healthy, lastUpdated is now.
func TestProxyHealthBodies(t *testing.T) {
	c := newClinic(t)
	c.VPP(true)
	c.all(nodeChange(&model.Node{Name: "node-1"}))
	c.pass(time.Second)
	for path, want := range map[string]string{
		"/healthz": `OK {"lastUpdated":"2026-01-01T12:00:01Z","currentTime":"2026-01-01T12:00:01Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-01T12:00:00Z","healthy":true}}}`,
		"/livez":   `OK {"lastUpdated":"2026-01-01T12:00:01Z","currentTime":"2026-01-01T12:00:01Z","healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-01T12:00:00Z","healthy":true}}}`,
	} {
		if got := c.get(path); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
		}
	}
	c.VPP(false)
	c.pass(stuckAfter)
	const want = `Service Unavailable {"lastUpdated":"2026-01-01T12:00:00Z","currentTime":"2026-01-01T12:01:01Z","nodeEligible":true,"healthy":false,"status":{"IPv4":{"lastUpdated":"2026-01-01T12:00:00Z","healthy":false}}}`
	if got := c.get("/healthz"); got != want {
		t.Errorf("unwell:\n%s\nwant\n%s", got, want)
	}
}

// healthz gets /healthz at an address; the code is 0 without an answer.
func healthz(at string) (code int, b Answer) {
	code = poll.Get("http://"+at+"/healthz", &b)
	return code, b
}

// TestHealthzPortIsTakenOver: the agent reports an occupied port once, opens it when it is free, and closes it at the end.
func TestHealthzPortIsTakenOver(t *testing.T) {
	at := port.Address(t)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	c := newClinic(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, ended := &textBuffer{}, make(chan struct{})
	go func() { defer close(ended); c.Serve(ctx, at, slog.New(slog.NewTextHandler(log, nil))) }()
	poll.Until(t, "a problem", func() bool { return strings.Contains(c.Problem(), "address already in use") })
	_ = taken.Close()
	poll.Until(t, "an answer", func() bool { code, _ := healthz(at); return code == http.StatusServiceUnavailable })
	if why := c.Problem(); why != "" {
		t.Errorf("the problem is still reported: %s", why)
	}
	if n := strings.Count(log.String(), "healthz is not served yet"); n != 1 {
		t.Errorf("reported %d times:\n%s", n, log)
	}
	cancel()
	<-ended
	again, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatalf("after the end: %v", err)
	}
	_ = again.Close()
}
