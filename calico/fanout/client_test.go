package fanout

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// client is a minimal peer: it keeps what the server sends.
type client struct {
	conn   net.Conn
	enc    *wire.Encoder
	dec    *wire.Decoder
	br     *bufio.Reader
	server wire.ServerHello

	keys   map[string]string
	kinds  map[wire.UpdateType]int
	status wire.Status
	mute   bool // does not answer pings
	onKVs  func([]wire.KV)
}

func newClient(conn net.Conn) *client {
	br := bufio.NewReader(conn)
	return &client{
		conn: conn, br: br, enc: wire.NewEncoder(conn), dec: wire.NewDecoder(br, 64<<20),
		keys: map[string]string{}, kinds: map[wire.UpdateType]int{},
	}
}

func hello(host string) wire.ClientHello {
	return wire.ClientHello{
		Hostname: host, Version: "test", SyncerType: wire.Felix, SupportsDecoderRestart: true,
		SupportedCompressionAlgorithms: []string{wire.Snappy},
	}
}

func (c *client) shake(h wire.ClientHello) error {
	if err := c.enc.Encode(h); err != nil {
		return err
	}
	m, err := c.dec.Decode()
	if err != nil {
		return err
	}
	var ok bool
	if c.server, ok = m.(wire.ServerHello); !ok {
		return fmt.Errorf("%T in place of a hello", m)
	}
	return nil
}

// step reads one message and answers it.
func (c *client) step() error {
	m, err := c.dec.Decode()
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case wire.DecoderRestart:
		if m.CompressionAlgorithm != wire.Snappy {
			return fmt.Errorf("restart with %q", m.CompressionAlgorithm)
		}
		c.dec = wire.NewDecoder(wire.NewSnappyReader(c.br), 64<<20)
		return c.enc.Encode(wire.ACK{})
	case wire.Ping:
		if !c.mute {
			return c.enc.Encode(wire.Pong{PingTimestamp: m.Timestamp})
		}
	case wire.SyncStatus:
		c.status = m.SyncStatus
	case wire.KVs:
		for _, kv := range m.KVs {
			c.kinds[kv.UpdateType]++
			if kv.Deleted() {
				delete(c.keys, kv.Key)
			} else {
				c.keys[kv.Key] = string(kv.Value)
			}
		}
		if c.onKVs != nil {
			c.onKVs(m.KVs)
		}
	default:
		return fmt.Errorf("unexpected %T", m)
	}
	return nil
}

// until calls step until done returns true.
func (c *client) until(done func() bool) error {
	for !done() {
		if err := c.step(); err != nil {
			return err
		}
	}
	return nil
}

// pipes is a listener whose connections are inside the process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p *pipes) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, errors.New("refused")
	}
}

// serving runs a server.
func serving(t *testing.T, cfg Config) (*Server, *pipes) {
	t.Helper()
	if cfg.Syncers == nil {
		cfg.Syncers = wire.SyncerTypes()
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := newPipes()
	keepServing(t, s, l)
	return s, l
}

func keepServing(t *testing.T, s *Server, l net.Listener) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// servingTCP runs a server on loopback. TLS needs it: both sides may write at once, and pipes would block.
func servingTCP(t *testing.T, cfg Config) (*Server, string) {
	t.Helper()
	cfg.Syncers = wire.SyncerTypes()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	keepServing(t, s, l)
	return s, l.Addr().String()
}

// connected returns a client after the handshake.
func connected(t *testing.T, l *pipes, h wire.ClientHello) *client {
	t.Helper()
	conn, err := l.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := newClient(conn)
	if err := c.shake(h); err != nil {
		t.Fatal(err)
	}
	return c
}

func kv(key, value string) wire.KV { return wire.KV{Key: key, Value: []byte(value), Revision: "1"} }

func batchOf(status wire.Status, kvs ...wire.KV) wire.Batch {
	return wire.Batch{Syncer: wire.Felix, Status: status, KVs: kvs}
}

const settle = time.Minute // of the fake clock: longer than any publication takes
