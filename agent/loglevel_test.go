package agent

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/test/logbuffer"
)

// TestLogLevel: only the agent's unix socket changes the level.
func TestLogLevel(t *testing.T) {
	var level slog.LevelVar
	log := &logbuffer.Buffer{}
	w := start(t, func(c *Config) {
		c.Process.LogLevel, c.Process.Logger = &level, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: &level}))
	})
	w.wait("first sync", firstSync)
	socket := w.agent.cfg.Listen.Status
	if got, err := control.FetchLogLevel(t.Context(), socket); got != "INFO" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if err := control.SetLogLevel(t.Context(), socket, "warn"); err != nil || level.Level() != slog.LevelWarn {
		t.Errorf("%v %v", level.Level(), err)
	}
	for _, bad := range []string{"", "loud", strings.Repeat("x", 2000)} {
		if err := control.SetLogLevel(t.Context(), socket, bad); err == nil || level.Level() != slog.LevelWarn {
			t.Errorf("%.10s: %v, level %v", bad, err, level.Level())
		}
	}
	w.agent.log.Info("not to be seen")
	if text := log.String(); !strings.Contains(text, `msg="log level" was=INFO is=WARN`) || strings.Contains(text, "not to be seen") {
		t.Errorf("the log:\n%s", text)
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
		rec := httptest.NewRecorder()
		httpserver.Mux(prometheus.NewRegistry(), w.agent.gallery.Ready, true).ServeHTTP(rec, httptest.NewRequest(method, "/loglevel", strings.NewReader(`{"level":"debug"}`)))
		if rec.Code != http.StatusNotFound {
			t.Errorf("%s on the network: %d %s", method, rec.Code, rec.Body)
		}
	}
	fixed := start(t, nil)
	fixed.wait("first sync", firstSync)
	if err := control.SetLogLevel(t.Context(), fixed.agent.cfg.Listen.Status, "warn"); err == nil || !strings.Contains(err.Error(), "cannot change its log level") {
		t.Errorf("a logger of another owner: %v", err)
	}
}
