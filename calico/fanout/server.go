package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/httpserver"
)

// ErrUnknownSyncer is the error of a client that requests a set of keys which is not served.
var ErrUnknownSyncer = errors.New("unknown syncer type")

// ErrPlaintext is the error of a listener beyond loopback without TLS.
var ErrPlaintext = errors.New("connections are neither encrypted nor authenticated")

// New returns a server without keys. Its errors are those of Validate.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("fan-out: %w", err)
	}
	cfg.defaults()
	s := &Server{
		cfg: cfg, m: newMetrics(cfg.Registerer), caches: map[set]*cache{}, conns: map[uint64]*conn{},
		words: newWords(), slots: make(chan struct{}, cfg.Snapshots), balancer: balancer{cfg: cfg.Balance},
	}
	for _, syncer := range cfg.Syncers {
		s.addCache(set{syncer: syncer})
	}
	for _, syncer := range cfg.Modern {
		s.addCache(set{syncer, true})
	}
	if s.balancer.cfg.Count == nil {
		s.balancer.cfg.Count = s.counter(cfg.Balance)
	}
	return s, nil
}

func (s *Server) addCache(of set) {
	if s.caches[of] != nil {
		return
	}
	c := newCache(of.String(), s.cfg.BatchEvery, s.m.cache(of.String()))
	if of.modern {
		c.twin = s.caches[set{syncer: of.syncer}]
	}
	s.caches[of] = c
}

// Publish takes a batch from a source. It drops batches of sets that are not served. It never blocks on a client. It is safe
// for concurrent use, but each set should have one source.
func (s *Server) Publish(b wire.Batch) {
	if c := s.caches[set{b.Syncer, b.Modern}]; c != nil {
		c.applyBatch(b)
	}
}

// cacheFor returns the set that a client requests, in the newest form it supports; nil if the set is not served.
func (s *Server) cacheFor(hello wire.ClientHello) *cache {
	if c := s.caches[set{hello.SyncerType, true}]; c != nil && hello.SupportsModernPolicyKeys {
		return c
	}
	return s.caches[set{hello.SyncerType, false}]
}

// Serve accepts clients until ctx ends; then it closes their connections (Config.Drain) and returns nil. It closes the
// listener. Other errors are the listener's. A server serves once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if s.cfg.TLS == nil && !s.cfg.Insecure && !httpserver.Loopback(l.Addr()) {
		return errors.Join(fmt.Errorf("%w at %s, which is not on loopback", ErrPlaintext, l.Addr()), l.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // changes continue while clients are drained
	var group sync.WaitGroup
	for _, c := range s.caches {
		group.Go(func() { c.runPublisher(running) })
	}
	group.Go(func() { s.govern(running) })
	unhook := context.AfterFunc(ctx, func() { _ = l.Close() })
	err := s.accept(running, l)
	if unhook() {
		_ = l.Close() // the listener failed
	}
	if ctx.Err() != nil {
		err = nil
		s.drain(running)
	}
	stop()
	s.closeAll("server ends")
	s.handlers.Wait()
	group.Wait()
	return err
}

// accept accepts connections until the listener is closed. If the process is out of file descriptors, it waits for some.
func (s *Server) accept(ctx context.Context, l net.Listener) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		nc, err := l.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case err == nil:
			s.beginConn(ctx, nc)
		case errors.As(err, &temporary) && temporary.Temporary():
			s.cfg.Logger.Warn("accept", "err", err)
			pause.Reset(100 * time.Millisecond)
			<-pause.C
		default:
			return fmt.Errorf("accept: %w", err)
		}
	}
}

// beginConn serves a connection unless there are too many.
func (s *Server) beginConn(ctx context.Context, nc net.Conn) {
	s.m.accepted.Inc()
	s.mu.Lock()
	if s.draining || len(s.conns) >= s.cfg.MaxConnections {
		s.mu.Unlock()
		s.m.refused.WithLabelValues("too many").Inc()
		_ = nc.Close()
		return
	}
	s.nextID++
	c := &conn{
		id: s.nextID, net: secure(nc, s.cfg.TLS), raw: nc, cfg: &s.cfg, m: s.m, born: time.Now(), ended: make(chan struct{}),
		log: s.cfg.Logger.With("client", nc.RemoteAddr().String(), "conn", s.nextID),
	}
	s.conns[c.id] = c
	s.m.connections.Set(float64(len(s.conns)))
	s.handlers.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.handlers.Done()
		err := c.serve(ctx, s)
		c.closeBecause("")
		s.forgetConn(c)
		s.account(c, err)
	}()
}

func (s *Server) forgetConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
	s.m.connections.Set(float64(len(s.conns)))
}

// account records why a connection ended: once, in the log and in the metrics.
func (s *Server) account(c *conn, err error) {
	reason := "error"
	if because := c.reason.Load(); because != nil {
		reason, err = *because, nil
	} else if errors.Is(err, io.EOF) {
		reason, err = "client left", nil
	}
	if c.grace.Load() == nil {
		if errors.Is(err, ErrUnknownSyncer) {
			reason = "unknown syncer"
		}
		s.m.refused.WithLabelValues(reason).Inc()
		c.log.Debug("client went without a snapshot", "reason", reason, "err", err)
		return
	}
	s.m.closed.WithLabelValues(reason).Inc()
	c.log.Debug("client gone", "reason", reason, "err", err, "after", time.Since(c.born).Round(time.Millisecond))
}

// snapshotLease is how long a client holds one of the places for snapshots. A slower client continues without a place.
const snapshotLease = time.Second

// admit waits for a place to receive a snapshot. When many clients connect, the first then finish early instead of all
// late. The returned function gives the place back; so does the end of snapshotLease.
func (s *Server) admit(ctx context.Context, c *conn) (release func(), err error) {
	select {
	case s.slots <- struct{}{}:
	case <-c.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := sync.OnceFunc(func() { <-s.slots })
	lease := time.AfterFunc(snapshotLease, free)
	return func() { // may be called twice
		lease.Stop()
		free()
	}, nil
}

// allConns returns the connections, oldest first.
func (s *Server) allConns() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *conn) int { return int(a.id) - int(b.id) })
	return out
}

func (s *Server) closeAll(reason string) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	for _, c := range s.allConns() {
		c.closeBecause(reason)
	}
}

// drain closes the connections one after the other, within Config.Drain, and at least one per second.
func (s *Server) drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	conns := s.allConns()
	if s.cfg.Drain == 0 || len(conns) == 0 {
		return
	}
	pause := min(s.cfg.Drain/time.Duration(len(conns)), time.Second)
	s.cfg.Logger.Info("draining", "clients", len(conns), "pause", pause)
	ticker := time.NewTicker(max(pause, time.Millisecond))
	defer ticker.Stop()
	for _, c := range conns {
		select {
		case <-c.ended:
			continue
		default:
		}
		c.closeBecause("server ends")
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
