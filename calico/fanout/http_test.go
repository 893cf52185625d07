package fanout

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// TestHandler: the server is not ready until every set is in sync, nor while it drains.
func TestHandler(t *testing.T) { synctest.Test(t, handler) }

func handler(t *testing.T) {
	registry := prometheus.NewRegistry()
	s, err := New(Config{Syncers: []wire.SyncerType{wire.Felix}, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	h := s.Handler(registry, false)
	get := func(path string, code int, part string) string {
		t.Helper()
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.RemoteAddr = "127.0.0.1:40000" // reasons are for clients on loopback
		h.ServeHTTP(rec, req)
		if rec.Code != code || !strings.Contains(rec.Body.String(), part) {
			t.Errorf("%s: %d %s; want %d and %q", path, rec.Code, rec.Body, code, part)
		}
		return rec.Body.String()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, newPipes()) }()

	s.Publish(batchOf(wire.ResyncInProgress, kv("/calico/v1/config/x", "y")))
	synctest.Wait()
	get("/livez", http.StatusOK, "ok")
	get("/readyz", http.StatusServiceUnavailable, `"reason":"keys of felix: resync"`)
	s.Publish(batchOf(wire.InSync))
	time.Sleep(time.Second) // longer than changes are collected
	synctest.Wait()
	get("/readyz", http.StatusOK, `"healthy":true`)
	get("/healthz", http.StatusOK, `"healthy":true`)
	get("/metrics", http.StatusOK, `contiv_fanout_status{syncer="felix"}`)
	get("/debug/pprof/", http.StatusNotFound, "")
	var status []SetStatus
	if err := json.Unmarshal([]byte(get("/status", http.StatusOK, "")), &status); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Status(), status); diff != "" || len(status) != 1 || status[0].Count != 1 {
		t.Errorf("/status (-want +got):\n%s%+v", diff, status)
	}

	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	get("/readyz", http.StatusServiceUnavailable, "draining its clients")
}
