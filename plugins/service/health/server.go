package health

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// The server retries an address and port that cannot be opened after firstRetry, then after twice as long each time, up to
// lastRetry.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Config configures where and how health checks are answered.
type Config struct {
	// Addresses of the node's network stack to listen at; none: the node's addresses with node ports, if these are not all of its
	// addresses, else every address.
	Addresses []netip.Addr
	// Healthy reports whether VPP has the desired state of Services; nil: always. Its context ends with the request.
	Healthy func(context.Context) bool
	// Listen opens a TCP address whose host may be missing; nil: the operating system's.
	Listen func(ctx context.Context, address string) (net.Listener, error)
	Logger *slog.Logger // nil: silent
}

// Server answers health checks of the services that it receives through a renderer's methods. These methods never fail and may be
// called before, during and after Run. Problems returns why ports are closed.
type Server struct {
	cfg  Config
	wake chan struct{} // capacity one

	mu       sync.Mutex // the agent's loop writes, servers and Run read
	checks   map[model.ServiceID]renderer.HealthCheck
	owners   map[uint16][]model.ServiceID // of each port, sorted; the first has it
	node     renderer.NodeState
	problems map[netip.AddrPort]string // by place that cannot be opened
}

var (
	_ renderer.ServiceListener = (*Server)(nil)
	_ renderer.NodeRenderer    = (*Server)(nil)
)

// New returns a server without services; it does not listen before Run.
func New(cfg Config) *Server {
	if cfg.Healthy == nil {
		cfg.Healthy = func(context.Context) bool { return true }
	}
	if cfg.Listen == nil {
		cfg.Listen = func(ctx context.Context, address string) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		cfg: cfg, wake: make(chan struct{}, 1), checks: map[model.ServiceID]renderer.HealthCheck{}, owners: map[uint16][]model.ServiceID{},
		problems: map[netip.AddrPort]string{},
	}
}

// Run listens wherever services ask for it, until ctx ends. The error is nil: Run retries places that cannot be opened.
func (s *Server) Run(ctx context.Context) error {
	open := map[netip.AddrPort]*door{}
	defer func() {
		for _, d := range open {
			d.close()
		}
	}()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for wait := firstRetry; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-retry.C:
		case <-s.wake:
			wait = firstRetry
		}
		if s.settleDoors(ctx, open) {
			retry.Stop()
			continue
		}
		retry.Reset(wait)
		wait = backoff.Range{Min: firstRetry, Max: lastRetry}.Next(wait)
	}
}

// settleDoors closes and opens doors until they match the desired ones, and reports whether all could be opened.
func (s *Server) settleDoors(ctx context.Context, open map[netip.AddrPort]*door) bool {
	want := s.wanted()
	for at, d := range open {
		if _, keep := want[at]; !keep || d.isShut() {
			d.close()
			delete(open, at)
		}
	}
	problems := map[netip.AddrPort]string{}
	for at := range want {
		if open[at] != nil {
			continue
		}
		l, err := s.cfg.Listen(ctx, place(at))
		if err != nil {
			problems[at] = err.Error()
			continue
		}
		open[at] = s.serve(ctx, l, s.handler(at.Port()))
	}
	s.report(problems)
	return len(problems) == 0
}

// report replaces the reasons why places are closed, and logs the new ones.
func (s *Server) report(problems map[netip.AddrPort]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, why := range problems {
		if s.problems[at] != why {
			s.cfg.Logger.Warn("health checks are not answered", "address", place(at), "err", why)
		}
	}
	s.problems = problems
}

// wanted returns the places to listen at. The zero address stands for all.
func (s *Server) wanted() map[netip.AddrPort]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[netip.AddrPort]struct{}{}
	for port := range s.owners {
		for _, a := range s.listenAddresses() {
			out[netip.AddrPortFrom(a, port)] = struct{}{}
		}
	}
	return out
}

// listenAddresses returns the addresses to listen at, for each port.
func (s *Server) listenAddresses() []netip.Addr {
	switch {
	case len(s.cfg.Addresses) > 0:
		return s.cfg.Addresses
	case len(s.node.NoNodePorts) == 0:
		return []netip.Addr{{}}
	}
	return slices.DeleteFunc(slices.Clone(s.node.IPs), func(a netip.Addr) bool { return !s.node.ServesNodePorts(a) })
}

// place returns the argument for Listen.
func place(at netip.AddrPort) string {
	if !at.Addr().IsValid() {
		return ":" + strconv.Itoa(int(at.Port()))
	}
	return at.String()
}

// handler answers requests at a port with the state of the service that has the port at that time.
func (s *Server) handler(port uint16) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		owners := s.owners[port]
		if len(owners) == 0 {
			s.mu.Unlock()
			http.Error(w, "no service asks for health checks here", http.StatusServiceUnavailable)
			return
		}
		id, check := owners[0], s.checks[owners[0]]
		s.mu.Unlock()
		writeAnswer(w, id, local(check, r), s.cfg.Healthy(r.Context()))
	})
}

// local returns the number of endpoints in the family of the client's request. Families count separately, as separate proxies would.
func local(check renderer.HealthCheck, r *http.Request) int {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && at.AddrPort().Addr().Unmap().Is6() {
		return check.Local6
	}
	return check.Local4
}

// door is one open place.
type door struct {
	stop  context.CancelFunc
	shut  chan struct{} // closed when the listener has ended
	ended chan struct{} // closed when all of its goroutines have ended
}

func (s *Server) serve(ctx context.Context, l net.Listener, h http.Handler) *door {
	ctx, stop := context.WithCancel(ctx)
	d := &door{stop: stop, shut: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		err := httpserver.HTTP(ctx, l, h, s.cfg.Logger)
		close(d.shut)
		if ctx.Err() == nil { // it ended without a request: Run opens it again
			s.cfg.Logger.Warn("health checks are interrupted", "address", l.Addr().String(), "err", err)
			s.changed()
		}
	}()
	return d
}

// close waits until the place is free, because another door may open there next.
func (d *door) close() {
	d.stop()
	<-d.ended
}

func (d *door) isShut() bool {
	select {
	case <-d.shut:
		return true
	default:
		return false
	}
}

// Problems returns, by service, why its health checks are not answered: another service has the port, or it cannot be opened. Any
// goroutine may call it; the caller owns the result.
func (s *Server) Problems() map[model.ServiceID][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[model.ServiceID][]string{}
	for port, owners := range s.owners {
		for _, id := range owners[1:] {
			out[id] = append(out[id], fmt.Sprintf("health checks at port %d are answered for Service %s: it asks for the same port", port, owners[0]))
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(s.problems), netip.AddrPort.Compare) {
		if owners := s.owners[at.Port()]; len(owners) > 0 {
			out[owners[0]] = append(out[owners[0]], fmt.Sprintf("health checks at port %d are not answered: %s", at.Port(), s.problems[at]))
		}
	}
	return out
}
