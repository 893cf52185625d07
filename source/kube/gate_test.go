package kube

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/contiv-agent/contiv-agent/source/kube/api"
)

// pausing is the back-off of an outage whose pauses end when the test says so.
type pausing struct {
	began chan struct{} // receives when a request waits
	end   chan time.Time
	ctx   context.Context
}

func (p *pausing) C() <-chan time.Time {
	select {
	case p.began <- struct{}{}:
	case <-p.ctx.Done():
	}
	return p.end
}
func (p *pausing) Next() {}
func (p *pausing) Stop() {}

// cutClient returns a client of s. cut(true) closes all its connections and refuses new ones until cut(false). dials counts
// the attempts to connect.
func cutClient(t *testing.T, s *apiServer) (c api.Client, cut func(bool), dials func() int) {
	var mu sync.Mutex
	away, count := false, 0
	var open []net.Conn
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if count++; away {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("nobody there")}
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			open = append(open, conn)
		}
		return conn, err
	}
	c, err := api.New(&rest.Config{Host: s.URL, Dial: dial})
	if err != nil {
		t.Fatal(err)
	}
	cut = func(now bool) {
		mu.Lock()
		defer mu.Unlock()
		away = now
		for _, conn := range open {
			conn.Close()
		}
		open = nil
	}
	return c, cut, func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// During an outage one informer tries on behalf of all. When it connects, all continue from where they were.
func TestOneInformerRetriesForAll(t *testing.T) {
	each(t, func(t *testing.T, s *apiServer) {
		s.put(world()...)
		c, cut, dials := cutClient(t, s)
		src := New(Config{Client: c, Batch: 30 * time.Millisecond})
		p := &pausing{began: make(chan struct{}), end: make(chan time.Time), ctx: t.Context()}
		outages := 0
		src.gate.timer = func() wait.Timer { outages++; return p }
		f := start(t, src)
		f.expect("wait-for-ready", "resync", worldWords, "in-sync")

		cut(true)
		f.expectFault("in-sync", "endpointslices, namespaces, networkpolicies, nodes, pods, serviceaccounts, servicecidrs, services: dial")
		<-p.began
		before := dials()
		for range 5 {
			p.end <- time.Time{}
			<-p.began
		}
		if n := dials() - before; n != 5 {
			t.Errorf("5 turns, %d connections tried", n)
		}
		s.put(service("db", "10.96.0.11", 5432), namespace("new"))
		cut(false)
		p.end <- time.Time{}
		for changes := []string{"+Namespace new", "+Service default/db"}; len(changes) > 0; {
			switch got := <-f.events; {
			case slices.Contains(changes, got):
				changes = slices.DeleteFunc(changes, func(c string) bool { return c == got })
			case got == "+Namespace new +Service default/db":
				changes = nil
			}
		}
		if outages != 1 {
			t.Errorf("%d outages, was 1", outages)
		}
	})
}

// A request whose context ends returns its turn, so that another one can try.
func TestCancelledRequestReturnsTurn(t *testing.T) {
	g := newGate()
	p := &pausing{began: make(chan struct{}), end: make(chan time.Time), ctx: t.Context()}
	g.timer = func() wait.Timer { return p }
	quiet := func(error) {}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- g.pass(ctx, quiet, func() error { return &net.OpError{Op: "dial", Err: errors.New("nobody there")} })
	}()
	<-p.began
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("gave up with %v", err)
	}
	answer := errors.New("an answer")
	heard := make(chan error, 4)
	for range 2 { // one tries, the other is held back
		go func() { ended <- g.pass(t.Context(), func(err error) { heard <- err }, func() error { return answer }) }()
		if err := <-heard; !unreachable(err) {
			t.Errorf("held back with %v", err)
		}
	}
	<-p.began
	p.end <- time.Time{}
	for range 2 {
		if err := <-ended; err != answer {
			t.Errorf("%v, want the answer", err)
		}
	}
	if err := g.pass(t.Context(), quiet, func() error { return nil }); err != nil { // the gate is open: no pause
		t.Error(err)
	}
}
