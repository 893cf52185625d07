package fanout

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// helloLimit bounds a client's messages, in bytes: a hello has a few hundred.
const helloLimit = 16 << 10

// conn is one connection. One goroutine reads it, and after the snapshot a second one writes.
type conn struct {
	id   uint64
	net  net.Conn // with TLS, if configured
	raw  net.Conn
	cfg  *Config
	m    *metrics
	log  *slog.Logger
	born time.Time

	dec    *wire.Decoder
	enc    *wire.Encoder
	cache  *cache
	host   string
	snappy bool
	own    bool // an agent of this program, which reads /contiv/ keys

	reached atomic.Pointer[crumb]     // the last crumb being sent; nil before the snapshot
	grace   atomic.Pointer[time.Time] // end of the grace period; nil: the snapshot is still being sent
	pinged  atomic.Pointer[time.Time] // when the oldest unanswered ping was sent; nil: none. Both have monotonic readings: clocks are set
	owed    atomic.Int64              // unanswered pings

	once   sync.Once
	ended  chan struct{}
	reason atomic.Pointer[string] // why the server closed the connection, if it did
}

// errProtocol means that a client's message is not allowed at that point.
var errProtocol = errors.New("unexpected message")

// closeBecause closes the connection; both goroutines notice at their next read or write. The first reason counts. It is ""
// if an error has the reason.
func (c *conn) closeBecause(reason string) {
	c.once.Do(func() {
		if reason != "" {
			c.reason.Store(&reason)
		}
		close(c.ended)
		_ = c.raw.Close() // a TLS close would wait for the peer; clients reconnect without one as well
	})
}

// serve handles the client until either side ends the connection. The error is the reason, unless closeBecause was called
// before.
func (c *conn) serve(ctx context.Context, s *Server) error {
	hello, err := c.handshake(s)
	if err != nil {
		return err
	}
	s.came(c.host)
	began := time.Now()
	v, err := c.sendSnapshot(ctx, s)
	if err != nil {
		return fmt.Errorf("send the snapshot: %w", err)
	}
	c.m.snapshot.WithLabelValues(c.cache.name).Observe(time.Since(began).Seconds())
	c.log.Debug("snapshot sent", "keys", v.keys, "own", c.own, "took", time.Since(began).Round(time.Microsecond), "version", hello.Version)
	return c.stream(v.crumb)
}

// stream sends the changes after the snapshot, and reads pongs, until the end.
func (c *conn) stream(from *crumb) error {
	streaming := c.m.streaming.WithLabelValues(c.cache.name)
	streaming.Inc()
	defer streaming.Dec()
	c.cache.clients.Add(1)
	defer c.cache.clients.Add(-1)
	grace := time.Now().Add(c.cfg.Grace)
	c.grace.Store(&grace)
	if err := c.net.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	wrote := make(chan error, 1)
	go func() {
		wrote <- c.writeCrumbs(from)
		c.closeBecause("") // ends the reader
	}()
	err := c.readPongs()
	c.closeBecause("")
	if werr := <-wrote; werr != nil && errors.Is(err, net.ErrClosed) {
		err = werr
	}
	return err
}

// handshake reads the hello and answers it.
func (c *conn) handshake(s *Server) (wire.ClientHello, error) {
	if err := c.net.SetDeadline(time.Now().Add(c.cfg.HelloWithin)); err != nil {
		return wire.ClientHello{}, err
	}
	if c.cfg.TLS != nil {
		var err error
		if apart(func() { err = handshakeTLS(c.net) }); err != nil {
			return wire.ClientHello{}, fmt.Errorf("TLS: %w", err)
		}
	}
	c.dec = wire.NewDecoder(bufio.NewReaderSize(c.net, 512), helloLimit)
	c.enc = wire.NewEncoder(c.net)
	m, err := c.dec.Decode()
	if err != nil {
		return wire.ClientHello{}, fmt.Errorf("read the hello: %w", err)
	}
	hello, ok := m.(wire.ClientHello)
	if !ok {
		return hello, fmt.Errorf("%w: %T in place of a hello", errProtocol, m)
	}
	if hello.SyncerType == "" {
		hello.SyncerType = wire.Felix
	}
	if c.cache = s.cacheFor(hello); c.cache == nil {
		return hello, fmt.Errorf("%w: client wants keys of %q", ErrUnknownSyncer, hello.SyncerType)
	}
	c.host, c.own = hello.Hostname, hello.Own()
	c.snappy = hello.SupportsDecoderRestart && slices.Contains(hello.SupportedCompressionAlgorithms, wire.Snappy)
	c.log = c.log.With("host", hello.Hostname, "keys-of", c.cache.name)
	c.log.Debug("client connected", "version", hello.Version, "compressed", c.snappy)
	return hello, c.say(wire.ServerHello{
		Version: c.cfg.Version, SyncerType: hello.SyncerType, SupportsNodeResourceUpdates: true, ServerConnID: c.id,
	})
}

// say sends a message of the uncompressed stream.
func (c *conn) say(m wire.Message) error {
	if err := c.net.SetWriteDeadline(time.Now().Add(c.cfg.WriteWithin)); err != nil {
		return err
	}
	return c.enc.Encode(m)
}

// restartStream ends a stream and waits for the client's ACK.
func (c *conn) restartStream() error {
	if err := c.net.SetReadDeadline(time.Now().Add(c.cfg.PongWithin)); err != nil {
		return err
	}
	m, err := c.dec.Decode()
	if err != nil {
		return fmt.Errorf("read the ACK: %w", err)
	}
	if _, ok := m.(wire.ACK); !ok {
		return fmt.Errorf("%w: %T in place of an ACK", errProtocol, m)
	}
	return nil
}

// sendSnapshot sends all keys of a view and the opening of the stream of changes. It returns the view.
func (c *conn) sendSnapshot(ctx context.Context, s *Server) (*view, error) {
	if c.snappy {
		restart := wire.DecoderRestart{Message: "the snapshot follows, compressed", CompressionAlgorithm: wire.Snappy}
		if err := c.say(restart); err != nil {
			return nil, err
		}
		if err := c.restartStream(); err != nil {
			return nil, err
		}
	}
	release, err := s.admit(ctx, c)
	if err != nil {
		return nil, err
	}
	defer release()
	v := c.cache.startView(time.Now())
	c.reached.Store(v.crumb)
	status := wire.SyncStatus{SyncStatus: v.crumb.status}
	if !c.snappy {
		if err := c.sendPlain(v); err != nil {
			return v, err
		}
		if err := c.enc.Define(wire.KVs{}, wire.SyncStatus{}, wire.Ping{}); err != nil {
			return v, err
		}
		return v, c.say(status)
	}
	if err := c.sendCompressed(v, &s.words); err != nil {
		return v, err
	}
	release()
	if err := c.restartStream(); err != nil {
		return v, err
	}
	return v, c.sendBuffers("changes", [][]byte{s.words.before(v.crumb.status)})
}

// words are the compressed bytes that all clients receive around their keys.
type words struct {
	snapshot, end []byte                  // before and after a snapshot
	changes       [wire.InSync + 1][]byte // before the changes, by status
}

// before returns the opening of the stream of changes.
func (w *words) before(status wire.Status) []byte {
	if int(status) < len(w.changes) {
		return w.changes[status]
	}
	return changesFrom(status) // a status of a later protocol
}

func changesFrom(status wire.Status) []byte {
	return opening(wire.AppendMessage(nil, wire.SyncStatus{SyncStatus: status}), wire.SyncStatus{}, wire.KVs{}, wire.Ping{})
}

// opening returns the beginning of a compressed stream with messages of these types.
func opening(first []byte, of ...wire.Message) []byte {
	return wire.AppendSnappy([]byte(wire.SnappyHeader), append(wire.AppendDefinitions(nil, of...), first...))
}

func newWords() words {
	last := wire.AppendMessage(nil, wire.DecoderRestart{Message: "changes follow", CompressionAlgorithm: wire.Snappy})
	w := words{snapshot: opening(nil, wire.KVs{}, wire.DecoderRestart{}), end: wire.AppendSnappy(nil, last)}
	for i := range w.changes {
		w.changes[i] = changesFrom(wire.Status(i))
	}
	return w
}

// sendCompressed sends the second stream: all keys, in bytes that all clients share.
func (c *conn) sendCompressed(v *view, w *words) error {
	bufs := [][]byte{w.snapshot}
	for _, s := range v.parts(c.own) {
		bufs = append(bufs, s.compressed())
		if len(bufs) >= 32 {
			if err := c.sendBuffers("snapshot", bufs); err != nil {
				return err
			}
			bufs = bufs[:0]
		}
	}
	return c.sendBuffers("snapshot", append(bufs, w.end))
}

// plainBytes is the approximate size of one message of an uncompressed snapshot. Each is encoded per client, and a client
// may stop reading.
const plainBytes = 32 << 10

// sendPlain sends all keys uncompressed.
func (c *conn) sendPlain(v *view) error {
	if err := c.enc.Define(wire.KVs{}); err != nil {
		return err
	}
	var buf []byte
	for _, s := range v.parts(c.own) {
		for from := 0; from < len(s.entries); {
			to, size := from, 0
			for ; to < len(s.entries) && (to == from || size+len(s.entries[to].element) <= plainBytes); to++ {
				size += len(s.entries[to].element)
			}
			buf = appendEntries(buf[:0], s.entries[from:to])
			if err := c.sendBuffers("snapshot", [][]byte{buf}); err != nil {
				return err
			}
			from = to
		}
	}
	return nil
}

// sendBuffers writes all buffers with one deadline; it may modify bufs. what names them for the error.
func (c *conn) sendBuffers(what string, bufs [][]byte) error {
	if err := c.net.SetWriteDeadline(time.Now().Add(c.cfg.WriteWithin)); err != nil {
		return err
	}
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	if len(bufs) > 1 && size <= 16<<10 { // one TLS record, one write
		bufs = [][]byte{slices.Concat(bufs...)}
	}
	all := net.Buffers(bufs)
	n, err := all.WriteTo(c.net)
	c.m.sent.WithLabelValues(c.cache.name, what).Add(float64(n))
	return err
}

// gatherBytes is how many bytes of changes are written at once to a client that is behind.
const gatherBytes = 1 << 20

// writeCrumbs follows the crumbs after at, and sends pings, until the connection ends.
func (c *conn) writeCrumbs(at *crumb) error {
	ping := time.NewTimer(c.pingPause())
	defer ping.Stop()
	var bufs [][]byte
	for {
		bufs = bufs[:0]
		for size := 0; size < gatherBytes; {
			next := at.next.Load()
			if next == nil {
				break
			}
			at = next
			if b := at.frames(c.snappy, c.own); len(b) > 0 {
				bufs, size = append(bufs, b), size+len(b)
			}
		}
		if len(bufs) > 0 {
			if err := c.sendBuffers("changes", bufs); err != nil {
				return fmt.Errorf("send changes: %w", err)
			}
			clear(bufs)
		}
		c.reached.Store(at)
		select {
		case <-at.done:
		case <-c.ended:
			return nil
		case <-ping.C:
			if err := c.ping(); err != nil {
				return fmt.Errorf("send a ping: %w", err)
			}
			ping.Reset(c.pingPause())
		}
	}
}

// pingPause returns a randomized pause, so that many clients' pings spread.
func (c *conn) pingPause() time.Duration {
	return c.cfg.PingEvery - c.cfg.PingEvery/10 + rand.N(c.cfg.PingEvery/5+1)
}

func (c *conn) ping() error {
	now := time.Now()
	b := wire.AppendMessage(nil, wire.Ping{Timestamp: now})
	if c.snappy {
		b = wire.AppendSnappy(nil, b)
	}
	c.owed.Add(1)
	c.pinged.CompareAndSwap(nil, &now)
	return c.sendBuffers("changes", [][]byte{b})
}

// readPongs reads the client's messages after the snapshot: one pong per ping, and nothing else. It ends with an error.
func (c *conn) readPongs() error {
	for {
		m, err := c.dec.Decode()
		if err != nil {
			return err
		}
		pong, ok := m.(wire.Pong)
		if !ok {
			return fmt.Errorf("%w: %T in place of a pong", errProtocol, m)
		}
		if c.owed.Add(-1) < 0 {
			return fmt.Errorf("%w: a pong without a ping", errProtocol)
		}
		c.pinged.Store(nil)
		c.m.pong.Observe(time.Since(pong.PingTimestamp).Seconds())
	}
}
