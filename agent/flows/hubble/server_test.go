package hubble

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
	"github.com/contiv-agent/contiv-agent/proto/hubble/observer"
	"github.com/contiv-agent/contiv-agent/proto/hubble/peer"
)

// serveSample serves a source on a unix socket, ten seconds after the server began, and returns a connection and the address.
func serveSample(t *testing.T, source Source) (conn *grpc.ClientConn, address string) {
	t.Helper()
	now := began
	s, err := New(Config{Listen: "unix:" + filepath.Join(t.TempDir(), "hubble.sock"), Node: "node-1", Version: "v9", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	now = began.Add(10 * time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	nodes := func(context.Context) ([]Node, error) { return nil, nil }
	go func() { ended <- s.Run(ctx, source, nodes, func(a net.Addr) { listening <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	select {
	case <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	address = s.address
	if conn, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, address
}

func invoke[T proto.Message](t *testing.T, conn *grpc.ClientConn, method string, req proto.Message, answer T) T {
	t.Helper()
	if err := conn.Invoke(t.Context(), "/observer.Observer/"+method, req, answer); err != nil {
		t.Fatal(method, err)
	}
	return answer
}

// follow calls a method that answers with a stream.
func follow(t *testing.T, conn *grpc.ClientConn, method string, req proto.Message) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = errors.Join(stream.SendMsg(req), stream.CloseSend())
	}
	if err != nil {
		t.Fatal(method, err)
	}
	return stream
}

// next returns the next answer, as "flow NUMBER", by its second, or "lost SOURCE NUMBER".
func next(stream grpc.ClientStream) (string, error) {
	r := &observer.GetFlowsResponse{}
	if err := stream.RecvMsg(r); err != nil {
		return "", err
	}
	if lost := r.GetLostEvents(); lost != nil {
		return fmt.Sprintf("lost %s %d", lost.GetSource(), lost.GetNumEventsLost()), nil
	}
	return fmt.Sprintf("flow %d", int(r.GetTime().AsTime().Sub(began).Seconds())+1), nil
}

func expect(t *testing.T, stream grpc.ClientStream, want ...string) {
	t.Helper()
	for _, w := range want {
		if got, err := next(stream); got != w || err != nil {
			t.Fatalf("%s, %v; want %s", got, err, w)
		}
	}
}

// A client learns what the server has, and of which node.
func TestStatus(t *testing.T) {
	all := sample()
	all[5].Last = began.Add(-2 * time.Minute)
	all[5].Source = flows.Peer{Kind: flows.Pod, Namespace: "early", Name: "x", Address: addr("fd00::7")}
	old := all[4]
	old.Last, old.Source.Namespace, old.Source.Name = began.Add(-2*time.Hour), "forgotten", "x"
	conn, address := serveSample(t, newMemory(agentflows.MostFlows, append(all, old)...))
	st := invoke(t, conn, "ServerStatus", &observer.ServerStatusRequest{}, &observer.ServerStatusResponse{})
	want := &observer.ServerStatusResponse{NumFlows: 7, MaxFlows: agentflows.MostFlows, SeenFlows: 7, UptimeNs: 10_000_000_000, Version: "v9", FlowsRate: 5. / 60}
	if !proto.Equal(st, want) {
		t.Errorf("status %v, want %v", st, want)
	}
	nodes := invoke(t, conn, "GetNodes", &observer.GetNodesRequest{}, &observer.GetNodesResponse{}).GetNodes()
	if len(nodes) != 1 || nodes[0].GetName() != "node-1" || nodes[0].GetAddress() != address || nodes[0].GetTls().GetEnabled() {
		t.Errorf("nodes: %v", nodes)
	}
	spaces := invoke(t, conn, "GetNamespaces", &observer.GetNamespacesRequest{}, &observer.GetNamespacesResponse{})
	var names []string
	for _, n := range spaces.GetNamespaces() {
		names = append(names, n.GetCluster()+"/"+n.GetNamespace())
	}
	if diff := cmp.Diff([]string{"default/early", "default/prod", "default/shop"}, names); diff != "" {
		t.Error(diff)
	}
	well, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "hubble.server.Observer"})
	if err != nil || well.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", well, err)
	}
	for _, method := range []string{"GetAgentEvents", "GetDebugEvents"} {
		if _, err := next(follow(t, conn, "/observer.Observer/"+method, &observer.GetFlowsRequest{})); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// A client that follows gets each change once, and learns what it did not get.
func TestGetFlows(t *testing.T) {
	all := sample()
	m := newMemory(4, all[:3]...)
	conn, _ := serveSample(t, m)
	const method = "/observer.Observer/GetFlows"
	once := follow(t, conn, method, &observer.GetFlowsRequest{Number: 2})
	expect(t, once, "flow 2", "flow 3")
	if _, err := next(once); err == nil || status.Code(err) != codes.Unknown { // io.EOF
		t.Errorf("behind the last flow: %v", err)
	}
	tcp := follow(t, conn, method, &observer.GetFlowsRequest{Number: 1, Follow: true, Whitelist: []*flow.FlowFilter{{Protocol: []string{"tcp"}}}})
	expect(t, tcp, "flow 3")
	every := follow(t, conn, method, &observer.GetFlowsRequest{Number: 1, Follow: true})
	expect(t, every, "flow 3")
	again := all[0]
	again.Last = began.Add(8 * time.Second)
	m.add(0, all[3], again)
	expect(t, every, "flow 4", "flow 9")
	expect(t, tcp, "flow 9")
	m.add(2, all[4], all[5], all[2], all[1], all[0]) // the flow of number 5 is forgotten: 6 to 10 are too many
	expect(t, every, "lost HUBBLE_RING_BUFFER 1", "lost PERF_EVENT_RING_BUFFER 2", "flow 6", "flow 3", "flow 2", "flow 1")
	m.mu.Lock()
	m.present, m.read = 53636, 8
	m.mu.Unlock()
	m.add(1, all[0])
	expect(t, every, "lost PERF_EVENT_RING_BUFFER 53628", "flow 1")
	expect(t, follow(t, conn, method, &observer.GetFlowsRequest{Number: 1}), "flow 1", "lost PERF_EVENT_RING_BUFFER 53628")
	m.mu.Lock()
	m.present, m.read = 8, 8
	m.mu.Unlock()
	over := follow(t, conn, method, &observer.GetFlowsRequest{Number: 1, Follow: true})
	expect(t, over, "flow 1")
	if _, err := next(follow(t, conn, method, &observer.GetFlowsRequest{Whitelist: []*flow.FlowFilter{{HttpPath: []string{"/"}}}})); status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "whitelist[0].http_path: ") {
		t.Errorf("a filter that cannot be evaluated: %v", err)
	}
}

// A server serves as many calls as it may, and others again after they end.
func TestCallsAreLimited(t *testing.T) {
	conn, _ := serveSample(t, newMemory(4, sample()[:1]...))
	ctx, cancel := context.WithCancel(t.Context())
	for range MaxStreams {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/observer.Observer/GetFlows")
		if err == nil {
			err = errors.Join(stream.SendMsg(&observer.GetFlowsRequest{Number: 1, Follow: true}), stream.CloseSend())
		}
		if err != nil {
			t.Fatal(err)
		}
		expect(t, stream, "flow 1")
	}
	second, err := grpc.NewClient(conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	if _, err := next(follow(t, second, "/observer.Observer/GetFlows", &observer.GetFlowsRequest{})); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one call too many: %v", err)
	}
	cancel()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if time.Now().After(deadline) {
			t.Fatal("no call is served after all others ended")
		}
		if got, err := next(follow(t, second, "/observer.Observer/GetFlows", &observer.GetFlowsRequest{})); got == "flow 1" {
			return
		} else if status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
}

// An agent that does not watch flows says so.
func TestNoFlows(t *testing.T) {
	conn, _ := serveSample(t, (*agentflows.Watcher)(nil))
	err := conn.Invoke(t.Context(), "/observer.Observer/ServerStatus", &observer.ServerStatusRequest{}, &observer.ServerStatusResponse{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "--flows") {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	for listen, c := range map[string]struct {
		tls  bool
		want string
	}{
		"127.0.0.1:4244": {false, ""},
		"localhost:4244": {false, ""},
		"unix:/run/x":    {false, ""},
		":4244":          {true, ""},
		"0.0.0.0:4244":   {false, "without certificates it must be a loopback address"},
		"10.0.0.1":       {false, "must be HOST:PORT or unix:PATH"},
		"unix://":        {false, "needs the path of a socket"},
		"unix:/run/y":    {true, "a unix socket has none"},
	} {
		cfg := Config{Listen: listen}
		if c.tls {
			cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		_, err := New(cfg)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", listen, err, c.want)
		}
	}
}

// The nodes are announced at the port of this one, where other nodes reach them.
func TestPeers(t *testing.T) {
	nodes := []Node{{"node-1", addr("10.0.0.1")}, {"node-2.b", addr("fd00::2")}, {"node-3", addr("127.0.1.3")}}
	for address, want := range map[string][]string{
		"[::]:4244":        {"node-1 10.0.0.1:4244", "node-2.b [fd00::2]:4244", "node-3 127.0.1.3:4244"},
		"10.0.0.9:4244":    {"node-1 10.0.0.9:4244", "node-2.b [fd00::2]:4244", "node-3 127.0.1.3:4244"},
		"127.0.0.1:9":      {"node-1 127.0.0.1:9", "node-3 127.0.1.3:9"},
		"unix:///run/sock": {"node-1 unix:///run/sock"},
	} {
		s := &Server{cfg: Config{Node: "node-1"}, address: address}
		var got []string
		for _, p := range s.peersOf(nodes) {
			got = append(got, p.GetName()+" "+p.GetAddress())
			if p.GetTls() != nil {
				t.Errorf("%s has TLS", p.GetName())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", address, diff)
		}
	}
	s := &Server{cfg: Config{Node: "node-1", TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, address: "0.0.0.0:4244"}
	if name := s.peersOf(nodes)[1].GetTls().GetServerName(); name != "node-2-b.default.hubble-grpc.cilium.io" {
		t.Errorf("the name in a certificate: %s", name)
	}
}

// recorded is a stream to a client that notes what it gets.
type recorded struct {
	grpc.ServerStream
	ctx context.Context
	got []string
}

func (r *recorded) Context() context.Context { return r.ctx }

func (r *recorded) SendHeader(metadata.MD) error { return nil }

func (r *recorded) SendMsg(m any) error {
	n := m.(*peer.ChangeNotification)
	r.got = append(r.got, strings.TrimPrefix(n.GetType().String(), "PEER_")+" "+n.GetName()+" "+n.GetAddress())
	return nil
}

// A client that follows the nodes gets all, and then each change.
func TestNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := []*model.Node{
			{Name: "node-2", InternalIPs: append([]netip.Addr{other.Address}, addr("10.9.9.9"))}, {Name: "node-1", InternalIPs: []netip.Addr{self.Address}}, {Name: "node-4"},
		}
		var loop sync.Mutex
		change := func(to ...*model.Node) {
			loop.Lock()
			defer loop.Unlock()
			nodes = to
		}
		s := &Server{cfg: Config{Node: "node-1"}, address: "0.0.0.0:4244"}
		s.nodes = nodesOf(agentflows.Loop{
			InLoop: func(_ context.Context, f func()) error { loop.Lock(); defer loop.Unlock(); f(); return nil },
		}, func() []*model.Node { return nodes })
		ctx, cancel := context.WithCancel(t.Context())
		to := &recorded{ctx: ctx}
		ended := make(chan error, 1)
		go func() { ended <- s.notify(nil, to) }()
		check := func(what string, want ...string) {
			t.Helper()
			time.Sleep(2 * askNodes)
			synctest.Wait()
			if diff := cmp.Diff(want, to.got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			to.got = nil
		}
		check("at first", "ADDED node-1 10.0.0.1:4244", "ADDED node-2 10.0.0.2:4244")
		check("without a change")
		change(append(nodes, &model.Node{Name: "node-3", InternalIPs: []netip.Addr{client.Address}})...)
		check("a new node", "ADDED node-3 10.1.1.2:4244")
		change(append([]*model.Node{{Name: "node-2", InternalIPs: []netip.Addr{web.Address}}}, nodes[1:]...)...)
		check("another address", "UPDATED node-2 10.1.2.3:4244")
		change(nodes[1:]...)
		check("a node is gone", "DELETED node-2 10.1.2.3:4244")
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	})
}
