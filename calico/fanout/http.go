package fanout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/httpserver"
)

// SetStatus is the state of one set of keys.
type SetStatus struct {
	// Keys names the set: its syncer type, with /modern for its second form.
	Keys string `json:"keysOf"`
	// Status is the last published status.
	Status string `json:"status"`
	Count  int    `json:"count"`
	Bytes  int    `json:"bytes"`
	// Clients is the number of clients that follow the set.
	Clients int `json:"clients"`
}

// Status returns the state of all sets, sorted by name.
func (s *Server) Status() []SetStatus {
	clients := map[string]int{}
	for _, c := range s.allConns() {
		if c.grace.Load() != nil {
			clients[c.cache.name]++
		}
	}
	var out []SetStatus
	for of, c := range s.caches {
		v := c.latest()
		keys, bytes := v.countKeys()
		out = append(out, SetStatus{of.String(), v.crumb.status.String(), keys, bytes, clients[of.String()]})
	}
	slices.SortFunc(out, func(a, b SetStatus) int { return strings.Compare(a.Keys, b.Keys) })
	return out
}

// Handler answers /metrics, /livez, /readyz, /healthz, /status, and /debug/pprof if profiles is true. The server is ready
// while every set is in sync and the server is not draining.
func (s *Server) Handler(gatherer prometheus.Gatherer, profiles bool) http.Handler {
	mux := httpserver.Mux(gatherer, s.ready, profiles)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { httpserver.JSON(w, http.StatusOK, s.Status()) })
	return mux
}

// ready returns why clients should use another server; nil if they need not.
func (s *Server) ready(context.Context) ([]string, error) {
	s.mu.Lock()
	draining := s.draining
	s.mu.Unlock()
	if draining {
		return nil, errors.New("the server is draining its clients")
	}
	for _, st := range s.Status() {
		if st.Status != wire.InSync.String() {
			return nil, fmt.Errorf("keys of %s: %s", st.Keys, st.Status)
		}
	}
	return nil, nil
}
