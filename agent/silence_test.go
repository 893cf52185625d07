package agent

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/test/poll"
)

// stopped is a VPP whose process can be stopped, as by SIGSTOP: messages to it wait.
type stopped struct {
	mu sync.RWMutex // held while it is stopped
}

// dial dials connections that VPP reads only while it runs.
func (s *stopped) dial(dial func(context.Context) (net.Conn, error)) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		nc, err := dial(ctx)
		return &stoppable{nc, s}, err
	}
}

type stoppable struct {
	net.Conn
	s *stopped
}

func (c *stoppable) Write(b []byte) (int, error) {
	c.s.mu.RLock()
	defer c.s.mu.RUnlock()
	return c.Conn.Write(b)
}

// A VPP that stops answering is reported everywhere, also without a pending request. When it continues, the agent continues
// on the same connection without a resync.
func TestSilentVPPIsSeen(t *testing.T) {
	var s stopped
	l := newListening()
	registry := prometheus.NewRegistry()
	w := start(t, func(c *Config) { c.VPP.Dial, c.Reporter, c.Process.Registry = s.dial(c.VPP.Dial), l, registry })
	w.wait("first sync", firstSync)
	w.settled()
	handler := httpserver.Mux(prometheus.NewRegistry(), w.agent.gallery.Ready, false)
	readyz := func() (int, httpserver.Health) {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, fromLoopback("/readyz"))
		var h httpserver.Health
		_ = json.Unmarshal(rec.Body.Bytes(), &h)
		return rec.Code, h
	}
	w.vpp.ClearLog()
	s.mu.Lock()
	poll.Until(t, "/readyz", func() bool {
		code, h := readyz()
		return code == http.StatusServiceUnavailable && strings.HasPrefix(h.Reason, "VPP has not answered for ") && strings.Contains(h.Reason, "control_ping")
	})
	st, err := w.agent.Status(t.Context())
	if err != nil || !slices.ContainsFunc(st.Problems, func(p status.Problem) bool {
		return p.Object == "VPP" && strings.HasPrefix(p.Text, "VPP has not answered")
	}) {
		t.Errorf("%+v %v", st, err)
	}
	w.report(l, func(rep *event.Report) bool {
		return !rep.Ready && slices.Contains(short(rep), "Node node-1 VPPSilent")
	})
	// A simulated VPP that gets no processor for so long is silent, too, and answers what it read before it was stopped: then this is the second silence.
	poll.Until(t, "metric", func() bool { return gauge(t, registry, "contiv_vpp_silent_seconds") >= 1.25 })
	if got := gauge(t, registry, "contiv_vpp_silences_total"); got < 1 || got > 2 {
		t.Errorf("%v silences", got)
	}
	s.mu.Unlock()
	poll.Until(t, "ready again", func() bool { code, _ := readyz(); return code == http.StatusOK })
	w.report(l, func(rep *event.Report) bool { return rep.Ready && len(rep.Problems) == 0 })
	for _, line := range w.vpp.Log() {
		if line.Name != "control_ping" {
			t.Errorf("asked of VPP meanwhile: %v", line)
		}
	}
	if st := w.agent.conn.State(); st.Generation != 1 {
		t.Errorf("%+v, want the connection there was", st)
	}
	if got := gauge(t, registry, "contiv_vpp_silent_seconds"); got != 0 {
		t.Errorf("metric says %v s afterwards", got)
	}
}

// gauge returns the value of a metric without labels.
func gauge(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
