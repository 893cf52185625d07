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

// An address and port that cannot be opened is tried again after firstRetry, then after twice as long each time, up to lastRetry.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Config says where and how health checks are answered.
type Config struct {
	// Addresses of the node's own network stack to listen at; none: those of the node that node ports are served on if that is
	// not all of them, else every address there is.
	Addresses []netip.Addr
	// Healthy reports whether what Services ask for is in VPP; nil: always. Its context ends with the request.
	Healthy func(context.Context) bool
	// Listen opens a TCP address, of which the host may be missing; nil: the operating system does.
	Listen func(ctx context.Context, address string) (net.Listener, error)
	Logger *slog.Logger // nil: silent
}

// Server answers health checks of services that it is told of as a renderer is. The methods of a renderer never fail and may be
// called whether it runs or not; what keeps a port closed is in Problems.
type Server struct {
	cfg  Config
	wake chan struct{} // has room for one

	mu       sync.Mutex // the loop of the agent tells, servers and Run read
	checks   map[model.ServiceID]renderer.HealthCheck
	owners   map[uint16][]model.ServiceID // of each port, sorted; the first has it
	node     renderer.NodeState
	problems map[netip.AddrPort]string // by place that cannot be opened
}

var (
	_ renderer.ServiceListener = (*Server)(nil)
	_ renderer.NodeRenderer    = (*Server)(nil)
)

// New returns a server that was told of no service and listens nowhere before Run.
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

// Run listens wherever services ask for it, until ctx ends. The error is nil: what cannot be opened is tried again.
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
		if s.settle(ctx, open) {
			retry.Stop()
			continue
		}
		retry.Reset(wait)
		wait = backoff.Range{Min: firstRetry, Max: lastRetry}.Next(wait)
	}
}

// settle closes and opens doors until they are as they are wanted, and reports whether all could be opened.
func (s *Server) settle(ctx context.Context, open map[netip.AddrPort]*door) bool {
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

// report takes over what keeps places closed, and logs what is new of it.
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

// wanted are the places to listen at. The zero address stands for all.
func (s *Server) wanted() map[netip.AddrPort]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[netip.AddrPort]struct{}{}
	for port := range s.owners {
		for _, a := range s.addresses() {
			out[netip.AddrPortFrom(a, port)] = struct{}{}
		}
	}
	return out
}

// addresses are where to listen at each port.
func (s *Server) addresses() []netip.Addr {
	switch {
	case len(s.cfg.Addresses) > 0:
		return s.cfg.Addresses
	case len(s.node.NoNodePorts) == 0:
		return []netip.Addr{{}}
	}
	return slices.DeleteFunc(slices.Clone(s.node.IPs), func(a netip.Addr) bool { return !s.node.ServesNodePorts(a) })
}

// place is what to give to Listen.
func place(at netip.AddrPort) string {
	if !at.Addr().IsValid() {
		return ":" + strconv.Itoa(int(at.Port()))
	}
	return at.String()
}

// handler answers at a port, with what is known of whoever has it then.
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
		answer(w, id, local(check, r), s.cfg.Healthy(r.Context()))
	})
}

// local is how many endpoints count for the family the client asks in: each has a proxy of its own, as far as it can tell.
func local(check renderer.HealthCheck, r *http.Request) int {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && at.AddrPort().Addr().Unmap().Is6() {
		return check.Local6
	}
	return check.Local4
}

// door is one open place.
type door struct {
	stop  context.CancelFunc
	shut  chan struct{} // closed when nobody listens any more
	ended chan struct{} // closed when nothing of it runs any more
}

func (s *Server) serve(ctx context.Context, l net.Listener, h http.Handler) *door {
	ctx, stop := context.WithCancel(ctx)
	d := &door{stop: stop, shut: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		err := httpserver.HTTP(ctx, l, h, s.cfg.Logger)
		close(d.shut)
		if ctx.Err() == nil { // nobody asked for it: Run opens it again
			s.cfg.Logger.Warn("health checks are interrupted", "address", l.Addr().String(), "err", err)
			s.changed()
		}
	}()
	return d
}

// close waits until the place is free: somebody may want it next.
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

// Problems says, by service, what keeps its health checks from being answered: another service has the port, or it cannot be
// opened. It may be called from anywhere; the result is the caller's.
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
