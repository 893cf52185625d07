package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
)

// fromLoopback is a request of a client that gets the full answer.
func fromLoopback(path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = "127.0.0.1:40000"
	return r
}

// busy keeps the loop of an agent in one step until the returned function is called.
func busy(t *testing.T, a *Agent) (release func()) {
	t.Helper()
	began, end := make(chan struct{}), make(chan struct{})
	go func() {
		_ = a.controller.Ask(context.Background(), func(*controller.Controller) { close(began); <-end })
	}()
	<-began
	release = sync.OnceFunc(func() { close(end) })
	t.Cleanup(release)
	return release
}

// A hundred clients get their answers from /readyz while the loop is busy; so do load balancers.
func TestReadersDoNotWaitForTheLoop(t *testing.T) {
	w := start(t, nil)
	w.wait("first sync", firstSync)
	w.settled()
	w.write("slice.yaml", endpoints)
	w.wait("endpoint", func(c *event.Committed) bool { return strings.Contains(c.Cause, "endpointslice") })
	handler := httpserver.Mux(prometheus.NewRegistry(), w.agent.gallery.Ready, false)
	release := busy(t, w.agent)
	var wg sync.WaitGroup
	var answered atomic.Int64
	for range 100 {
		wg.Go(func() {
			for range 20 {
				rec := httptest.NewRecorder()
				handler.ServeHTTP(rec, fromLoopback("/readyz"))
				var h httpserver.Health
				if err := json.Unmarshal(rec.Body.Bytes(), &h); err == nil && rec.Code == http.StatusOK && h.Healthy && w.agent.reader.Serves(t.Context()) {
					answered.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := answered.Load(); n != 2000 {
		t.Errorf("%d of 2000 answers", n)
	}
	st, err := w.agent.Status(t.Context()) // it waits for 2 s only
	if err != nil || !strings.Contains(st.Busy, "the event loop has been busy for") || st.Healthy || len(st.Services) != 1 {
		t.Errorf("%+v %v, want the last status, and a remark", st, err)
	}
	release()
	if st, err = w.agent.Status(t.Context()); err != nil || st.Busy != "" || !st.Healthy {
		t.Errorf("%+v %v, want the present status", st, err)
	}
}
