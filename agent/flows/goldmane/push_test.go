package goldmane

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/proto/calico/goldmane"
	"github.com/contiv-agent/contiv-agent/test/logbuffer"
)

// collector is a Goldmane that ends its first connections after some flows.
type collector struct {
	endAfter chan int            // flows of the next connection
	got      chan *goldmane.Flow // each flow
}

func (c *collector) connect(_ any, s grpc.ServerStream) error {
	left := <-c.endAfter
	for ; left != 0; left-- {
		u := &goldmane.FlowUpdate{}
		if err := s.RecvMsg(u); err != nil {
			return err
		}
		c.got <- u.Flow
		switch left {
		case 1:
			return nil // without a receipt
		case silent:
			<-s.Context().Done()
			return nil
		}
		if err := s.SendMsg(&goldmane.FlowReceipt{}); err != nil {
			return err
		}
	}
	return nil
}

// silent is a number of flows with which a connection stays, and gives no receipt.
const silent = -1

func serveCollector(t *testing.T) (*collector, string) {
	c := &collector{endAfter: make(chan int, 10), got: make(chan *goldmane.Flow, 100)}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "goldmane.FlowCollector", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Connect", Handler: c.connect, ServerStreams: true, ClientStreams: true}},
	}, c)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { close(c.endAfter); srv.Stop(); <-done })
	return c, l.Addr().String()
}

// Flows reach Goldmane when their window ends. After a connection that ended, without a receipt for the last flow, a new one gets all flows again.
func TestPushAndReconnect(t *testing.T) {
	c, addr := serveCollector(t)
	var log logbuffer.Buffer
	now := time.Unix(1700000010, 0)
	tick := make(chan time.Time)
	p := New(Config{Addr: addr, Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now.Add(time.Minute) }, Tick: tick})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = p.addUp(ctx); ended <- struct{}{} }()
	go func() { _ = p.keepConnected(ctx); ended <- struct{}{} }()
	defer func() { cancel(); <-ended; <-ended }()
	send := func(port uint16) {
		p.answers <- observed(now, func(f *flows.Flow) { f.Port = port })
	}
	want := func(ports ...int64) {
		t.Helper()
		for _, port := range ports {
			if f := <-c.got; f.Key.DestPort != port {
				t.Fatalf("port %d, want %d", f.Key.DestPort, port)
			}
		}
	}
	c.endAfter <- 2
	send(1)
	send(2)
	tick <- now
	want(1, 2)
	c.endAfter <- 1000
	want(1, 2)
	send(3)
	tick <- now
	want(3)
	if text := log.String(); strings.Count(text, "connected") != 2 || strings.Count(text, "no connection") != 1 {
		t.Errorf("log:\n%s", text)
	}
}

// A Goldmane that gives no receipt does not delay the end of the agent.
func TestEndWithoutReceipt(t *testing.T) {
	c, addr := serveCollector(t)
	p := New(Config{Addr: addr, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { _, err := p.sendFlows(ctx); ended <- err }()
	c.endAfter <- silent
	<-p.connected
	p.out <- &goldmane.Flow{}
	<-c.got
	cancel()
	select {
	case <-ended:
	case <-time.After(receiptLimit / 2):
		t.Error("it waits for the receipt")
	}
}

// An address needs a port; flows cross no network in plaintext unless that is asked for.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		Config
		want string
	}{
		{Config{Addr: "127.0.0.1:7443"}, ""},
		{Config{Addr: "localhost:7443"}, ""},
		{Config{Addr: "[::1]:7443"}, ""},
		{Config{Addr: "goldmane.calico-system.svc:7443", CA: "a", Cert: "b", Key: "c"}, ""},
		{Config{Addr: "10.0.0.1:7443", Insecure: true}, ""},
		{Config{Addr: "goldmane"}, "HOST:PORT"},
		{Config{Addr: "10.0.0.1:7443"}, "plaintext"},
		{Config{Addr: "10.0.0.1:7443", CA: "a"}, "need each other"},
		{Config{Addr: "10.0.0.1:7443", CA: "a", Cert: "b", Key: "c", Insecure: true}, "one of them"},
	} {
		err := c.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.Config, err)
		}
	}
	if _, err := (&Config{CA: "/none", Cert: "/none", Key: "/none"}).credentials(); err == nil {
		t.Error("files that do not exist")
	}
}

var _ = []func(context.Context, *agentflows.Watcher, agentflows.Loop) error{(&Pusher{}).Run} // fits Config.Beside
