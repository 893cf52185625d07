package typha

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/httpserver"
)

// messageLimit bounds a message of a server, in bytes: a thousand KVs, of which one may be a large Service or
// EndpointSlice.
const messageLimit = 256 << 20

// Errors of a server that cannot be followed.
var (
	// ErrProtocol means that a message is not allowed at that point.
	ErrProtocol = errors.New("unexpected message")
	// ErrSyncer means that the server does not send the requested keys.
	ErrSyncer = errors.New("server sends other keys")
	// errNoHello means that the server closed the connection at the hello, as servers do that reject it.
	errNoHello = errors.New("server closed the connection at the hello")
)

// session is one connection to a server.
type session struct {
	cfg  *Config
	conn net.Conn
	raw  *bufio.Reader // the server's bytes; shared by successive decoders
	enc  *wire.Encoder
	dec  *wire.Decoder
}

// open connects and exchanges hellos. The connection ends with ctx.
func open(ctx context.Context, cfg *Config, addr string, syncer wire.SyncerType, modern bool) (*session, wire.ServerHello, error) {
	s := &session{cfg: cfg}
	var hello wire.ServerHello
	dialing, cancel := context.WithTimeout(ctx, cfg.DialWithin)
	defer cancel()
	conn, err := cfg.Dial(dialing, addr)
	if err != nil {
		return nil, hello, err
	}
	s.conn = conn
	if cfg.TLS.off() && !cfg.Insecure && !httpserver.Loopback(conn.RemoteAddr()) { // checks where the name led: "localhost" may resolve to another machine
		_ = conn.Close()
		return nil, hello, fmt.Errorf("%s (%s): %w", addr, conn.RemoteAddr(), ErrPlaintext)
	}
	if !cfg.TLS.off() {
		tlsCfg, err := cfg.TLS.config()
		if err == nil {
			secured := tls.Client(conn, tlsCfg)
			s.conn, err = secured, secured.HandshakeContext(dialing)
		}
		if err != nil {
			_ = conn.Close()
			return nil, hello, fmt.Errorf("TLS with %s: %w", addr, err)
		}
	}
	if hello, err = s.hello(syncer, modern); err != nil {
		_ = s.conn.Close()
		return nil, hello, fmt.Errorf("hello to %s: %w", addr, err)
	}
	return s, hello, nil
}

func (s *session) hello(syncer wire.SyncerType, modern bool) (wire.ServerHello, error) {
	s.raw, s.enc = bufio.NewReaderSize(s.conn, 64<<10), wire.NewEncoder(s.conn)
	s.dec = wire.NewDecoder(s.raw, messageLimit)
	hello := wire.ClientHello{
		Hostname: s.cfg.Hostname, Info: wire.OwnInfo, Version: s.cfg.Version, SyncerType: syncer,
		SupportsDecoderRestart: !s.cfg.Plain, SupportsModernPolicyKeys: modern, ClientConnID: 1,
	}
	if !s.cfg.Plain {
		hello.SupportedCompressionAlgorithms = []string{wire.Snappy}
	}
	err := s.say(hello)
	var m wire.Message
	if err == nil {
		m, err = s.readMessage(s.cfg.HelloWithin)
	}
	if err != nil {
		if hungUp(err) {
			err = errNoHello
		}
		return wire.ServerHello{}, err
	}
	answer, ok := m.(wire.ServerHello)
	switch {
	case !ok:
		return answer, fmt.Errorf("%w: %T in place of a hello", ErrProtocol, m)
	case answer.SyncerType != syncer && (answer.SyncerType != "" || syncer != wire.Felix):
		return answer, fmt.Errorf("%w: %q, not %q", ErrSyncer, answer.SyncerType, syncer)
	case !answer.SupportsNodeResourceUpdates:
		return answer, fmt.Errorf("%w: it has no Node resources (version %s)", ErrSyncer, answer.Version)
	}
	return answer, nil
}

// hungUp reports whether err means that the peer closed the connection, while reading from it or writing to it.
func hungUp(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.EPIPE, syscall.ECONNRESET},
		func(end error) bool { return errors.Is(err, end) })
}

// readMessage returns the next message, or an error if none arrives in time.
func (s *session) readMessage(within time.Duration) (wire.Message, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	return s.dec.Decode()
}

func (s *session) say(m wire.Message) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.cfg.WriteWithin)); err != nil {
		return err
	}
	return s.enc.Encode(m)
}

// followStream passes on KVs and statuses until the connection ends. It returns the reason.
func (s *session) followStream(ctx context.Context, kvs func([]wire.KV), status func(wire.Status)) error {
	defer context.AfterFunc(ctx, func() { _ = s.conn.Close() })()
	defer s.conn.Close()
	for {
		m, err := s.readMessage(s.cfg.SilentFor)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case wire.KVs:
			kvs(m.KVs)
		case wire.SyncStatus:
			status(m.SyncStatus)
		case wire.Ping:
			err = s.say(wire.Pong{PingTimestamp: m.Timestamp, PongTimestamp: time.Now()})
		case wire.DecoderRestart:
			err = s.restartStream(m)
		default:
			err = fmt.Errorf("%w: %T", ErrProtocol, m)
		}
		if err != nil {
			return err
		}
	}
}

// restartStream begins a new stream. The server waits for the ACK before it sends any of it.
func (s *session) restartStream(m wire.DecoderRestart) error {
	switch m.CompressionAlgorithm {
	case "":
		s.dec = wire.NewDecoder(s.raw, messageLimit)
	case wire.Snappy:
		s.dec = wire.NewDecoder(wire.NewSnappyReader(s.raw), messageLimit)
	default:
		return fmt.Errorf("%w: compression %q", ErrProtocol, m.CompressionAlgorithm)
	}
	return s.say(wire.ACK{})
}
