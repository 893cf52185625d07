// Package httpserver turns handlers into a listening HTTP server: metrics, health and profiles at their usual paths, JSON
// answers, unix sockets that only one user may open. It also reads PEM files of certificate authorities.
//
// Invariant: the package does not know what it serves. When HTTP returns, nothing of the server runs except answers that
// took longer than the grace period.
package httpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// headerLimit, readLimit and answerLimit bound the time for a request's header, for the whole request, and for its
	// answer. idleLimit bounds the wait for the next request. A profile takes 30 s, and a plan of a large VPP a minute.
	headerLimit = 10 * time.Second
	readLimit   = 30 * time.Second
	answerLimit = 3 * time.Minute
	idleLimit   = time.Minute
	// headerBytes bounds the size of a request's header.
	headerBytes = 32 << 10
	// grace is how long running answers may continue after the context ends.
	grace = time.Second
)

// Health is the body of /healthz and /readyz, in kube-proxy's style.
type Health struct {
	Healthy     bool      `json:"healthy"`          // the service works; Problems may exist nevertheless
	Reason      string    `json:"reason,omitempty"` // why the service does not work; "" if healthy
	Problems    []string  `json:"problems,omitempty"`
	CurrentTime time.Time `json:"currentTime"`
}

// Mux returns a mux with these paths; callers may add more:
//
//	/metrics           the metrics of gatherer
//	/livez             always "ok"
//	/readyz, /healthz  Health: status 200 if ready returns no error, else 503 with the error as the reason; ready's strings are the problems
//	/debug/pprof       profiles, if profiles is true
//
// ready's context ends with the request. Reasons and problems name objects of tenants: clients that are not on loopback,
// such as kubelets, get the status alone.
func Mux(gatherer prometheus.Gatherer, ready func(context.Context) ([]string, error), profiles bool) *http.ServeMux {
	mux := http.NewServeMux()
	health := func(w http.ResponseWriter, r *http.Request) {
		problems, err := ready(r.Context())
		if !local(r) {
			if problems = nil; err != nil {
				err = errElsewhere
			}
		}
		answerHealth(w, problems, err)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", health)
	mux.HandleFunc("GET /healthz", health)
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// errElsewhere replaces the reason for clients that are not on loopback.
var errElsewhere = errors.New("not ready: only clients on loopback get the reason")

// local reports whether a request came from loopback or through a unix socket.
func local(r *http.Request) bool {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr == "" || r.RemoteAddr == "@" // a unix socket; its clients have no address
	}
	return a.Addr().Unmap().IsLoopback()
}

func answerHealth(w http.ResponseWriter, problems []string, err error) {
	h, code := Health{Healthy: err == nil, Problems: problems, CurrentTime: time.Now()}, http.StatusOK
	if err != nil {
		h.Reason, code = err.Error(), http.StatusServiceUnavailable
	}
	JSON(w, code, h)
}

// JSON answers with a status code and v as JSON.
func JSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has disconnected
}

// HTTP serves h on l until ctx ends; running answers then have one second to complete. l is closed when HTTP returns.
// Connections are limited in number and time. log gets net/http's messages as warnings; nil: silent. The error is why the
// server ended early, or that one second was not enough; nil if ctx ended it.
func HTTP(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	srv := server(h, log)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(limit(l)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := srv.Shutdown(last)
	if serveErr := <-ended; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

func server(h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerLimit, ReadTimeout: readLimit, WriteTimeout: answerLimit, IdleTimeout: idleLimit,
		MaxHeaderBytes: headerBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
