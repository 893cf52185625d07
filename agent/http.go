package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// queryLimit bounds how long an HTTP request may wait for the loop.
const queryLimit = 10 * time.Second

// observability serves /metrics, /healthz, /readyz, /livez, and /debug/pprof if configured.
func (a *Agent) observability(gatherer prometheus.Gatherer, profiles bool) http.Handler {
	return httpserver.Mux(gatherer, a.gallery.Ready, profiles)
}

// control serves the agent's unix socket: GET /status is the status command's output, with past transactions if the query
// has history=true; GET /policy/<namespace>/<pod> has the policies of a pod of this node; GET /plan has the changes that a
// resync would make in VPP, with the sessions that it would cut if the query has sessions=true.
func (a *Agent) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
		defer cancel()
		st, err := a.Status(ctx)
		if err != nil {
			httpserver.JSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
			return
		}
		if r.URL.Query().Get("history") == "true" {
			st.History = a.reader.History()
		}
		httpserver.JSON(w, http.StatusOK, st)
	})
	mux.HandleFunc("GET /policy/{namespace}/{pod}", a.servePolicy)
	mux.HandleFunc("GET /loglevel", a.serveLogLevel)
	mux.HandleFunc("PUT /loglevel", a.serveLogLevel)
	mux.HandleFunc("GET /plan", a.servePlan)
	return mux
}

func (a *Agent) servePolicy(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
	defer cancel()
	id := model.PodID{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	switch d, err := a.Policy(ctx, id); {
	case err != nil:
		httpserver.JSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
	case d == nil:
		httpserver.JSON(w, http.StatusNotFound, map[string]string{"error": fmt.Sprintf("pod %s has no endpoint on this node", id)})
	default:
		httpserver.JSON(w, http.StatusOK, d)
	}
}

// Status returns the state of the agent, of every Service and of every policy. If the loop is busy for longer than 2 s, it
// returns the last known status with the reason in Busy.
func (a *Agent) Status(ctx context.Context) (*status.Status, error) { return a.gallery.Status(ctx) }

// FetchStatus fetches the status of the agent at a unix socket, with past transactions if history is true.
func FetchStatus(ctx context.Context, socket string, history bool) (*status.Status, error) {
	st := &status.Status{}
	return st, fetch(ctx, socket, "/status?history="+strconv.FormatBool(history), st)
}

// FetchPolicy fetches the policies of a pod from the agent at a unix socket.
func FetchPolicy(ctx context.Context, socket string, pod model.PodID) (*policy.Description, error) {
	d := &policy.Description{}
	return d, fetch(ctx, socket, "/policy/"+url.PathEscape(pod.Namespace)+"/"+url.PathEscape(pod.Name), d)
}

// fetch gets a JSON answer from the agent at a unix socket.
func fetch(ctx context.Context, socket, path string, into any) error {
	return call(ctx, socket, http.MethodGet, path, nil, into)
}

// call is fetch with any method and a body.
func call(ctx context.Context, socket, method, path string, body io.Reader, into any) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://contiv-agent"+path, body)
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
