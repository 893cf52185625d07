package httpserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func get(h http.Handler, path string) (code int, body string) {
	rec := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = "127.0.0.1:40000"
	h.ServeHTTP(rec, r)
	return rec.Code, rec.Body.String()
}

func TestMux(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "answers", Help: "h"}))
	var unready error
	var problems []string
	ready := func(context.Context) ([]string, error) { return problems, unready }
	for _, tc := range []struct {
		path     string
		err      error
		problems []string
		profiles bool
		code     int
		body     string
	}{
		{path: "/metrics", code: 200, body: "answers 0"},
		{path: "/livez", code: 200, body: "ok\n"},
		{path: "/livez", err: errors.New("away"), code: 200, body: "ok\n"},
		{path: "/readyz", code: 200, body: `{"healthy":true,"currentTime":"2`},
		{path: "/healthz", code: 200, body: `{"healthy":true,"currentTime":"2`},
		{path: "/readyz", err: errors.New("away"), code: 503, body: `{"healthy":false,"reason":"away","currentTime":"2`},
		{path: "/healthz", err: errors.New("away"), code: 503, body: `{"healthy":false,"reason":"away","currentTime":"2`},
		{path: "/readyz", problems: []string{"a is b"}, code: 200, body: `{"healthy":true,"problems":["a is b"],"currentTime":"2`},
		{path: "/debug/pprof/", code: 404},
		{path: "/debug/pprof/", profiles: true, code: 200, body: "goroutine"},
		{path: "/debug/pprof/cmdline", profiles: true, code: 200},
		{path: "/debug/pprof/symbol", profiles: true, code: 200},
		{path: "/nothing", code: 404},
	} {
		unready, problems = tc.err, tc.problems
		code, body := get(Mux(registry, ready, tc.profiles), tc.path)
		if code != tc.code || !strings.Contains(body, tc.body) {
			t.Errorf("%s (%v): %d %s", tc.path, tc.err, code, body)
		}
	}
}

// Reasons and problems name tenants' objects: a client at another address gets the status alone.
func TestHealthFromOutsideHasNoDetails(t *testing.T) {
	ready := func(context.Context) ([]string, error) {
		return []string{"Service a/b is REFUSED"}, errors.New("source kube lacks a right")
	}
	mux := Mux(prometheus.NewRegistry(), ready, false)
	for addr, detailed := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "@": true, "": true,
		"192.0.2.1:1": false, "[fd00::1]:1": false, "10.1.1.2:127": false, "127.0.0.1": false, "nonsense": false,
	} {
		for _, path := range []string{"/readyz", "/healthz"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.RemoteAddr = addr
			rec := httptest.NewRecorder()
			mux.ServeHTTP(rec, r)
			body := rec.Body.String()
			if rec.Code != http.StatusServiceUnavailable || strings.Contains(body, "a/b") != detailed || strings.Contains(body, "kube") != detailed {
				t.Errorf("%s from %q: %d %s", path, addr, rec.Code, body)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	rec := httptest.NewRecorder()
	JSON(rec, http.StatusTeapot, map[string]string{"error": "why"})
	if rec.Code != http.StatusTeapot || rec.Header().Get("Content-Type") != "application/json" || rec.Body.String() != `{"error":"why"}`+"\n" {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
}

func TestHTTPEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	l, err := Unix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	asked := make(chan struct{})
	go func() {
		ended <- HTTP(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(asked)
			<-ctx.Done() // an answer that is running at the end
			JSON(w, http.StatusOK, Health{Healthy: true})
		}), nil)
	}()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	go func() { <-asked; cancel() }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://here/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var h Health
	if err := json.NewDecoder(resp.Body).Decode(&h); err != nil || !h.Healthy {
		t.Errorf("%+v, %v", h, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path); err == nil {
		t.Error("the socket still listens")
	}
}

func TestHTTPReturnsItsListenError(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := HTTP(t.Context(), l, http.NotFoundHandler(), nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed listener: %v", err)
	}
}

// Unix does not remove a file that is no socket.
func TestUnixReplacesOnlySockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Unix(t.Context(), path); err == nil || !strings.Contains(err.Error(), "is not a unix socket") {
		t.Errorf("%v %v", l, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("%q %v", b, err)
	}
}

func TestUnix(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "folder", "x.sock")
	first, err := Unix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Unix(t.Context(), path); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "another agent listens there") {
		t.Errorf("taken: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = first.Close()
	again, err := Unix(t.Context(), path)
	if err != nil {
		t.Fatalf("left over: %v", err)
	}
	go func() {
		if conn, err := again.Accept(); err == nil {
			_, _ = io.WriteString(conn, "here")
			_ = conn.Close()
		}
	}()
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(conn); string(said) != "here" {
		t.Errorf("%q, %v", said, err)
	}
	_ = again.Close()
	if _, err := Unix(t.Context(), filepath.Join(dir, strings.Repeat("long", 100))); err == nil {
		t.Error("no error for a name that is too long")
	}
}
