// Package httpserver turns handlers into a listening HTTP server: metrics, health and profiles where everybody looks for them, answers
// in JSON, sockets for one user alone; and files into certificates that are trusted. Invariant: it knows nothing of what it
// serves, and leaves nothing running behind HTTP but answers that were still being given when the grace was over.
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
	// headerLimit, readLimit and answerLimit bound how long a client may take for the header, for all of a request, and with the answer;
	// idleLimit how long a connection may wait for the next request. A profile takes 30 s, and a plan of a large VPP a minute.
	headerLimit = 10 * time.Second
	readLimit   = 30 * time.Second
	answerLimit = 3 * time.Minute
	idleLimit   = time.Minute
	// headerBytes bounds the header of a request.
	headerBytes = 32 << 10
	// grace is how long answers that are being given may go on after the end.
	grace = time.Second
)

// Health is the body of /healthz and /readyz, in kube-proxy's style.
type Health struct {
	Healthy     bool      `json:"healthy"`          // what is served can be served; there may be Problems all the same
	Reason      string    `json:"reason,omitempty"` // why not; "" if healthy
	Problems    []string  `json:"problems,omitempty"`
	CurrentTime time.Time `json:"currentTime"`
}

// Mux answers /metrics with what gatherer has, /livez always, /readyz and /healthz with Health (status 200 while ready returns
// no error, 503 with the reason otherwise; what else it returns are the problems), and /debug/pprof if profiles is true. ready's context ends with the request.
// Reasons and problems name objects of tenants: clients at another address than loopback, such as kubelets, have the status alone. Further paths may be added.
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

// errElsewhere is the reason for clients at other addresses.
var errElsewhere = errors.New("not ready: clients on loopback are answered why")

// local reports whether a request came over loopback, or a unix socket.
func local(r *http.Request) bool {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr == "" || r.RemoteAddr == "@" // a unix socket, whose clients have no name
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
	_ = json.NewEncoder(w).Encode(v) // the client went away: nobody is left to tell
}

// HTTP answers on l with h until ctx ends; then answers that are being given have a second. l is closed when it returns. Connections
// are limited in number and time. What net/http has to say is a warning of log; nil: silent. The error says why it ended early, or that a
// second was not enough; nil if ctx ended it.
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
