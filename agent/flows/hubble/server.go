package hubble

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/proto/hubble/observer"
	"github.com/contiv-agent/contiv-agent/proto/hubble/peer"
)

// Limits for all clients together.
const (
	// MaxStreams is the largest number of calls that read flows or follow nodes at a time; further ones are refused.
	MaxStreams = 64
	maxRequest = 1 << 20 // bytes
	maxIdle    = 5 * time.Minute
)

// The names of Hubble's services, and the one by which clients ask for their health.
const (
	observerService = "observer.Observer"
	peerService     = "peer.Peer"
	healthName      = "hubble.server.Observer"
)

// Source has flows; an agent's Watcher is one.
type Source interface {
	// All returns all flows that changed after a number.
	All(ctx context.Context, after uint64) (*agentflows.Answer, error)
	// Follow waits until a flow has changed after a number, and returns all flows that have.
	Follow(ctx context.Context, after uint64) (*agentflows.Answer, error)
}

// Server serves the flows of an agent.
type Server struct {
	cfg     Config
	began   time.Time
	source  Source
	nodes   func(context.Context) ([]Node, error)
	address string // at which it listens: HOST:PORT or unix://PATH
	streams atomic.Int64
	converter
}

// New returns a server. Serve or Run starts it.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	began := cfg.Now()
	return &Server{cfg: cfg, began: began, converter: converter{era: began.String()}}, nil
}

// Serve serves the flows of a watcher until ctx ends. A Server serves once.
func (s *Server) Serve(ctx context.Context, w *agentflows.Watcher, l agentflows.Loop) error {
	return s.Run(ctx, w, nodesOf(l, w.Nodes), func(net.Addr) {})
}

// Run serves the flows of a source until ctx ends, and the nodes of the cluster. It calls listening with its address when it listens.
func (s *Server) Run(ctx context.Context, source Source, nodes func(context.Context) ([]Node, error), listening func(net.Addr)) error {
	s.source, s.nodes = source, nodes
	l, err := s.listen(ctx)
	if err != nil {
		return fmt.Errorf("hubble: %w", err)
	}
	s.cfg.Logger.Info("hubble", "listen", s.address, "tls", s.cfg.TLS != nil)
	server := s.newServer()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return server.Serve(httpserver.Limit(l)) })
	g.Go(func() error {
		<-ctx.Done()
		server.Stop() // following clients learn that the agent ends
		return ctx.Err()
	})
	listening(l.Addr())
	return g.Wait()
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if path, ok := s.cfg.socket(); ok {
		s.address = "unix://" + path
		return httpserver.Unix(ctx, path)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err == nil {
		s.address = l.Addr().String()
	}
	return l, err
}

func (s *Server) newServer() *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(MaxStreams), grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxIdle, Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if s.cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(s.cfg.TLS.Clone())))
	}
	server := grpc.NewServer(opts...)
	for _, desc := range services() {
		server.RegisterService(desc, s)
	}
	well := health.NewServer()
	well.SetServingStatus(healthName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, well)
	return server
}

// services describes Hubble's two services.
func services() []*grpc.ServiceDesc {
	return []*grpc.ServiceDesc{
		{
			ServiceName: observerService, HandlerType: (*any)(nil), Metadata: observer.File_hubble_observer_observer_proto.Path(),
			Methods: []grpc.MethodDesc{
				question[observer.ServerStatusRequest](observerService, "ServerStatus", (*Server).serverStatus),
				question[observer.GetNodesRequest](observerService, "GetNodes", (*Server).ownNode),
				question[observer.GetNamespacesRequest](observerService, "GetNamespaces", (*Server).namespaces),
			},
			Streams: []grpc.StreamDesc{
				stream("GetFlows", (*Server).sendFlows),
				stream("GetAgentEvents", refuse[observer.GetAgentEventsRequest]), stream("GetDebugEvents", refuse[observer.GetDebugEventsRequest]),
			},
		},
		{
			ServiceName: peerService, HandlerType: (*any)(nil), Metadata: peer.File_hubble_peer_peer_proto.Path(),
			Streams: []grpc.StreamDesc{stream("Notify", (*Server).notify)},
		},
	}
}

// question answers a request without content.
func question[T any, P interface {
	*T
	proto.Message
}](service, name string, answer func(*Server, context.Context) (proto.Message, error),
) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		if err := decode(P(new(T))); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, _ any) (any, error) { return answer(srv.(*Server), ctx) }
		if intercept == nil {
			return handle(ctx, nil)
		}
		return intercept(ctx, nil, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + service + "/" + name}, handle)
	}}
}

// stream decodes a request and answers it with messages.
func stream[T any, P interface {
	*T
	proto.Message
}](name string, answer func(*Server, P, grpc.ServerStream) error,
) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(srv any, to grpc.ServerStream) error {
		s := srv.(*Server)
		defer s.streams.Add(-1)
		if s.streams.Add(1) > MaxStreams {
			return status.Errorf(codes.ResourceExhausted, "%d calls read flows, which is the limit: try again later", MaxStreams)
		}
		req := P(new(T))
		if err := to.RecvMsg(req); err != nil {
			return err
		}
		return answer(s, req, to)
	}}
}

func refuse[T any, P interface {
	*T
	proto.Message
}](*Server, P, grpc.ServerStream) error {
	return status.Error(codes.Unimplemented, "this agent has no such events: it has flows")
}
