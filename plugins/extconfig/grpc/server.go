package grpc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
)

// Server is the source of external configuration from gRPC clients. It serves Contiv's services, ligato's, the agent's
// ConfigService, reflection and health.
type Server struct {
	cfg       Config
	keeper    *extconfig.Keeper
	values    func() []event.Value // all values; nil: the controller does not show them
	changes   feed[change]
	reported  map[string]change // last reported change of each value
	links     feed[*interfaces.InterfaceNotification]
	admin     map[string]interfaces.InterfaceState_Status // last reported state of each interface
	under     atomic.Int64                                // bytes of changes in portions that are not complete yet
	calls     *calls
	patience  patience
	listening chan struct{} // closed when Run has opened its listeners
	addrs     []net.Addr
}

// New validates the configuration; the server does nothing before Run.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		cfg: cfg, listening: make(chan struct{}), calls: newCalls(), patience: standard,
		keeper: extconfig.NewKeeper(extconfig.Config{Name: Name, File: cfg.File, Logger: cfg.Logger}),
	}, nil
}

// String implements controller.ExternalConfigSource.
func (*Server) String() string { return Name }

// Addrs waits until the server listens and returns its addresses: TCP first, then the unix socket, as far as configured.
func (s *Server) Addrs(ctx context.Context) ([]net.Addr, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.listening:
		return s.addrs, nil
	}
}

// Run serves until ctx ends. A Server runs once.
func (s *Server) Run(ctx context.Context, emit func(event.Event)) error {
	g, ctx := errgroup.WithContext(ctx)
	listeners, err := s.listen(ctx)
	if err != nil {
		return fmt.Errorf("grpc: %w", err)
	}
	for _, l := range listeners {
		server := s.server(l.Addr().Network() == "tcp")
		g.Go(func() error { return server.Serve(httpserver.Limit(l)) })
		g.Go(func() error {
			<-ctx.Done()
			server.Stop() // waiting callers learn that the agent ends
			return ctx.Err()
		})
		s.addrs = append(s.addrs, l.Addr())
		s.cfg.Logger.Info("external configuration", "listen", l.Addr().String(), "tls", s.cfg.TLS != nil && l.Addr().Network() == "tcp")
	}
	close(s.listening)
	g.Go(func() error { return s.keeper.Run(ctx, emit) })
	return g.Wait()
}

func (s *Server) listen(ctx context.Context) (out []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range out {
				_ = l.Close() // it was never used
			}
		}
	}()
	if s.cfg.TCP != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.TCP)
		if err != nil {
			return out, err
		}
		out = append(out, l)
	}
	if s.cfg.Unix != "" {
		l, err := httpserver.Unix(ctx, s.cfg.Unix)
		if err != nil {
			return out, fmt.Errorf("unix socket: %w", err)
		}
		out = append(out, l)
	}
	return out, nil
}

// server returns a gRPC server with all services; with certificates, the one for TCP uses TLS.
func (s *Server) server(tcp bool) *grpc.Server {
	opts := append(s.calls.options(), s.patience.options()...)
	if tcp && s.cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(s.cfg.TLS.Clone())))
	}
	server := grpc.NewServer(opts...)
	for _, desc := range services() {
		server.RegisterService(desc, s)
	}
	healthpb.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	return server
}
