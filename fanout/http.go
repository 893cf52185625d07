package fanout

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/contiv-agent/contiv-agent/fanout/wire"
)

// SetStatus is the state of one set of keys.
type SetStatus struct {
	// Keys names the set: its syncer type, with /modern for its second form.
	Keys string `json:"keysOf"`
	// Status is the source's, as it was published last.
	Status string `json:"status"`
	Count  int    `json:"count"`
	Bytes  int    `json:"bytes"`
	// Clients follow the set's changes.
	Clients int `json:"clients"`
}

// Status is what a server serves, in the order of the sets' names.
func (s *Server) Status() []SetStatus {
	clients := map[string]int{}
	for _, c := range s.all() {
		if c.grace.Load() != 0 {
			clients[c.cache.name]++
		}
	}
	var out []SetStatus
	for of, c := range s.caches {
		v := c.latest()
		out = append(out, SetStatus{of.String(), v.crumb.status.String(), v.keys, v.bytes, clients[of.String()]})
	}
	slices.SortFunc(out, func(a, b SetStatus) int {
		if a.Keys < b.Keys {
			return -1
		}
		return 1
	})
	return out
}

// Handler answers /metrics, /livez, /readyz, /healthz, /status, and /debug/pprof if profiles is true. The server is ready
// while every set is in sync and it is not draining.
func (s *Server) Handler(gatherer prometheus.Gatherer, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.HandleFunc("GET /healthz", s.serveReady)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Status()) })
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// readiness is the body of /readyz and /healthz, as the agent has it.
type readiness struct {
	Healthy     bool      `json:"healthy"`
	Reason      string    `json:"reason,omitempty"`
	CurrentTime time.Time `json:"currentTime"`
}

func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	r := readiness{CurrentTime: time.Now(), Reason: s.unready()}
	code := http.StatusOK
	if r.Healthy = r.Reason == ""; !r.Healthy {
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, r)
}

// unready says why clients should go elsewhere; "" if they need not.
func (s *Server) unready() string {
	s.mu.Lock()
	draining := s.draining
	s.mu.Unlock()
	if draining {
		return "the server is letting its clients go"
	}
	for _, st := range s.Status() {
		if st.Status != wire.InSync.String() {
			return fmt.Sprintf("keys of %s: %s", st.Keys, st.Status)
		}
	}
	return ""
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client went away: nobody is left to tell
}
