package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// queryLimit bounds how long a question over HTTP may wait for the loop.
const queryLimit = 10 * time.Second

// observability answers /metrics, /healthz, /readyz, /livez, and /debug/pprof if asked for.
func (a *Agent) observability(gatherer prometheus.Gatherer, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", a.serveHealth)
	mux.HandleFunc("GET /healthz", a.serveHealth)
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// health is the body of /healthz and /readyz, in kube-proxy's style.
type health struct {
	Healthy     bool      `json:"healthy"`
	Reason      string    `json:"reason,omitempty"`
	CurrentTime time.Time `json:"currentTime"`
}

// serveHealth answers 200 while every source is in sync, VPP is connected and changes go through, and 503 with the reason
// otherwise.
func (a *Agent) serveHealth(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
	defer cancel()
	h := health{CurrentTime: time.Now()}
	st, err := a.Status(ctx)
	switch {
	case err != nil:
		h.Reason = err.Error()
	case !st.Healthy:
		h.Reason = st.Waiting
	default:
		h.Healthy = true
	}
	code := http.StatusOK
	if !h.Healthy {
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, h)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client went away: nobody is left to tell
}

// control answers on the agent's own unix socket: GET /status is what the status command shows, with past transactions
// if the query says history=true; GET /policy/<namespace>/<pod> is what applies to a pod of this node.
func (a *Agent) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
		defer cancel()
		st, err := a.Status(ctx)
		if err != nil {
			writeJSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
			return
		}
		if r.URL.Query().Get("history") == "true" {
			st.History = a.history()
		}
		writeJSON(w, http.StatusOK, st)
	})
	mux.HandleFunc("GET /policy/{namespace}/{pod}", a.servePolicy)
	return mux
}

func (a *Agent) servePolicy(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
	defer cancel()
	id := model.PodID{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	switch d, err := a.Policy(ctx, id); {
	case err != nil:
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
	case d == nil:
		writeJSON(w, http.StatusNotFound, map[string]string{"error": fmt.Sprintf("pod %s has no endpoint on this node", id)})
	default:
		writeJSON(w, http.StatusOK, d)
	}
}

// FetchStatus asks the agent behind a unix socket for its status, with past transactions if history is true.
func FetchStatus(ctx context.Context, socket string, history bool) (*Status, error) {
	st := &Status{}
	return st, fetch(ctx, socket, "/status?history="+strconv.FormatBool(history), st)
}

// FetchPolicy asks the agent behind a unix socket what applies to a pod of its node.
func FetchPolicy(ctx context.Context, socket string, pod model.PodID) (*policy.Description, error) {
	d := &policy.Description{}
	return d, fetch(ctx, socket, "/policy/"+url.PathEscape(pod.Namespace)+"/"+url.PathEscape(pod.Name), d)
}

// fetch asks the agent behind a unix socket for something that is written in JSON.
func fetch(ctx context.Context, socket, path string, into any) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://contiv-agent"+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no agent answers at %s: %w", socket, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var why struct{ Error string }
		if err := json.NewDecoder(resp.Body).Decode(&why); err != nil || why.Error == "" {
			why.Error = resp.Status
		}
		return fmt.Errorf("agent at %s: %s", socket, why.Error)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("answer of the agent at %s: %w", socket, err)
	}
	return nil
}

// serve answers HTTP on l until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: queryLimit}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := srv.Shutdown(grace)
	if serveErr := <-ended; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// listenUnix listens on a unix socket that only its owner may use. A socket that nobody answers is a leftover and is
// replaced; one that somebody answers is an error.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: another agent answers there: %w", path, syscall.EADDRINUSE)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
