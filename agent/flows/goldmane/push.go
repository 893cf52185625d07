// Package goldmane turns an agent's flows into those of Calico's Goldmane, and pushes them to one, as Felix does.
//
//	agent/flows.Watcher ─▶ grow: what changed ─▶ windows of 15 s ─▶ FlowUpdate ─▶ Goldmane
//	                                                 ▲               FlowReceipt ◀─┘
//	                                                 └─ a new connection sends the last 5 minutes again
//
// Invariant: memory is bounded; what has no room is counted and logged. A Goldmane that does not answer delays nothing in the agent.
package goldmane

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/backoff"
	"github.com/contiv-agent/contiv-agent/proto/calico/goldmane"
)

// method is Goldmane's collector.
const method = "/goldmane.FlowCollector/Connect"

// receiptLimit is how long Goldmane may take for a receipt.
const receiptLimit = 30 * time.Second

// readTime is how much later than its time a flow may arrive here.
const readTime = 2 * time.Second

// pauses are Felix's pauses between connections.
var pauses = backoff.Range{Min: time.Second, Max: 10 * time.Second}

// Config configures a Pusher.
type Config struct {
	Addr          string // of Goldmane, as host:port
	CA, Cert, Key string // files of TLS; "": plaintext
	Insecure      bool   // plaintext to any address
	Logger        *slog.Logger
	Now           func() time.Time
	Tick          <-chan time.Time // when open windows are looked at; nil: each second
}

// Validate returns the error of a setting.
func (c *Config) Validate() error {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return fmt.Errorf("address %q: must be HOST:PORT", c.Addr)
	}
	files := 0
	for _, f := range []string{c.CA, c.Cert, c.Key} {
		if f != "" {
			files++
		}
	}
	ip, _ := netip.ParseAddr(host)
	switch {
	case files != 0 && files != 3:
		return errors.New("the authorities, the certificate and its key need each other")
	case files == 3 && c.Insecure:
		return errors.New("certificates and plaintext: give one of them")
	case files == 0 && !c.Insecure && !ip.IsLoopback() && host != "localhost":
		return ErrPlaintext
	}
	return nil
}

// ErrPlaintext means that flows would cross a network in plaintext.
var ErrPlaintext = errors.New("flows of all pods would go to another host in plaintext")

// credentials reads the files. They are read again for each connection, because certificates are renewed.
func (c *Config) credentials() (credentials.TransportCredentials, error) {
	if c.CA == "" {
		return insecure.NewCredentials(), nil
	}
	cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificates", c.CA)
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{cert}}), nil
}

// Pusher pushes flows to one Goldmane.
type Pusher struct {
	Config
	answers   chan *agentflows.Answer
	connected chan struct{}       // a connection begins: all kept flows are sent again
	out       chan *goldmane.Flow // to the connection
}

// New returns a pusher for a valid configuration.
func New(c Config) *Pusher {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Pusher{Config: c, answers: make(chan *agentflows.Answer), connected: make(chan struct{}), out: make(chan *goldmane.Flow)}
}

// Run pushes the flows of a watcher until ctx ends. It is a function for agent/flows.Config.Beside.
func (p *Pusher) Run(ctx context.Context, w *agentflows.Watcher, _ agentflows.Loop) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.readFlows(ctx, w) })
	g.Go(func() error { return p.addUp(ctx) })
	g.Go(func() error { return p.keepConnected(ctx) })
	return g.Wait()
}

func (p *Pusher) readFlows(ctx context.Context, w *agentflows.Watcher) error {
	after := uint64(0)
	for {
		a, err := w.Follow(ctx, after)
		if err != nil {
			return err
		}
		after = a.Next
		select {
		case p.answers <- a:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// addUp owns the windows.
func (p *Pusher) addUp(ctx context.Context) error {
	w, lost := newWindows(agentflows.MostFlows), uint64(0)
	tick := p.Tick
	if tick == nil {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		tick = t.C
	}
	for {
		out, next := p.out, w.next()
		if next == nil {
			out = nil
		}
		select {
		case a := <-p.answers:
			w.grow(a)
		case <-tick:
			w.closeWindow(p.Now().Add(-readTime))
		case <-p.connected:
			w.again()
		case out <- next:
			w.sent()
		case <-ctx.Done():
			return ctx.Err()
		}
		if w.lost != lost {
			p.Logger.Warn("goldmane: flows had no room", "lost", w.lost-lost)
			lost = w.lost
		}
	}
}

// keepConnected connects whenever there is no connection.
func (p *Pusher) keepConnected(ctx context.Context) error {
	pause, said := time.Duration(0), ""
	for {
		sent, err := p.sendFlows(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if sent {
			pause, said = 0, ""
		}
		if text := err.Error(); text != said {
			p.Logger.Warn("goldmane: no connection", "addr", p.Addr, "err", text)
			said = text
		}
		pause = pauses.Next(pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendFlows sends flows by one connection, until that fails. It reports whether Goldmane has received one.
func (p *Pusher) sendFlows(ctx context.Context) (sent bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	creds, err := p.credentials()
	if err != nil {
		return false, err
	}
	conn, err := grpc.NewClient(p.Addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return false, err
	}
	select {
	case p.connected <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	receipts := make(chan error)
	receiving := sync.WaitGroup{}
	receiving.Go(func() { receive(ctx, stream, receipts) })
	defer receiving.Wait()
	defer cancel()
	for {
		select {
		case f := <-p.out:
			if err := stream.SendMsg(&goldmane.FlowUpdate{Flow: f}); err != nil && !errors.Is(err, io.EOF) { // the cause of io.EOF is received
				return sent, err
			}
			select {
			case err = <-receipts:
			case <-time.After(receiptLimit):
				err = fmt.Errorf("no receipt within %s", receiptLimit)
			case <-ctx.Done():
				err = ctx.Err()
			}
			if err != nil {
				return sent, err
			}
			if !sent {
				p.Logger.Info("goldmane: connected", "addr", p.Addr)
			}
			sent = true
		case err := <-receipts:
			return sent, cmp.Or(err, errors.New("a receipt for no flow"))
		case <-ctx.Done():
			return sent, ctx.Err()
		}
	}
}

// receive reports each receipt, and last the error by which the stream ends.
func receive(ctx context.Context, stream grpc.ClientStream, to chan<- error) {
	for {
		err := stream.RecvMsg(&goldmane.FlowReceipt{})
		select {
		case to <- err:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
