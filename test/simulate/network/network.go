// Package network turns calls of Dial into connections in memory to one listener, with the faults of a network: connections that fail, are lost, hang or are slow.
//
// Invariant: a connection delivers all bytes in order, or ends. Waiting is durable for testing/synctest, and a connection has no goroutines.
package network

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Faults are what the network does to connections. The zero value is none. Counters permit that faults overlap.
type Faults struct {
	Cut  int           // > 0: nothing listens
	Hung int           // > 0: bytes do not arrive, and are not lost
	Slow time.Duration // until a write arrives
	Thin int           // > 0: a connection holds less, so that a writer learns that the network is slow
	// Dead > 0: connections die without a reset, those that are open and those that begin. After Rest further bytes, and after the fault, each end reads nothing any
	// more. The ends of a dead connection learn of nothing: neither that the other end is closed, nor that it is lost.
	Dead int
	Rest int
}

// Network has one listener, which it implements, and any number of clients. Create with New.
type Network struct {
	mu      sync.Mutex
	faults  Faults
	ended   bool
	waiting []*end
	accept  *sync.Cond
	joint   *Joint        // accepts in place of the network; nil: the network does
	open    map[*end]bool // both ends of each connection
	dying   []*end        // they read what is left of Rest
}

// New returns a network without connections.
func New() *Network {
	n := &Network{open: map[*end]bool{}}
	n.accept = sync.NewCond(&n.mu)
	return n
}

// Change changes the faults. With Cut, all connections are lost. With Dead, all die.
func (n *Network) Change(f func(*Faults)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(&n.faults)
	if n.faults.Cut > 0 {
		n.sever()
	}
	if n.faults.Dead <= 0 {
		for _, e := range n.dying {
			e.rest = 0
		}
		n.dying = nil
	}
	for e := range n.open {
		if n.faults.Dead > 0 {
			e.die()
		}
		e.wake.Broadcast()
	}
}

// Sever loses all connections that are not dead: bytes that were not read are lost too.
func (n *Network) Sever() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sever()
}

func (n *Network) sever() {
	for e := range n.open {
		e.lost, e.arrived = true, nil
		e.wake.Broadcast()
	}
	clear(n.open)
	n.waiting = nil
}

// Dial connects to the listener.
func (n *Network) Dial(ctx context.Context) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case n.faults.Cut > 0 || n.ended || n.joint != nil && !n.joint.listens():
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	a, b := n.newEnd(), n.newEnd()
	a.peer, b.peer = b, a
	if n.joint != nil {
		n.joint.offer(b)
	} else {
		n.waiting = append(n.waiting, b)
		n.accept.Signal()
	}
	return a, nil
}

// DialAddress is Dial for callers that name an address, which does not matter.
func (n *Network) DialAddress(ctx context.Context, _, _ string) (net.Conn, error) { return n.Dial(ctx) }

func (n *Network) newEnd() *end {
	e := &end{net: n, wake: sync.NewCond(&n.mu)}
	n.open[e] = true
	if n.faults.Dead > 0 {
		e.die()
	}
	return e
}

// die lets nothing but the network's Rest arrive at this end, under mu.
func (e *end) die() {
	e.dead, e.rest = true, e.net.faults.Rest
	delete(e.net.open, e)
	e.net.dying = append(e.net.dying, e)
}

// Accept implements net.Listener.
func (n *Network) Accept() (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.waiting) == 0 && !n.ended {
		n.accept.Wait()
	}
	if n.ended {
		return nil, net.ErrClosed
	}
	c := n.waiting[0]
	n.waiting = n.waiting[1:]
	return c, nil
}

// Close implements net.Listener. Connections go on.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	n.accept.Broadcast()
	return nil
}

// Addr implements net.Listener. The address is one of loopback.
func (n *Network) Addr() net.Addr { return loopback() }

func loopback() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// How many bytes a connection holds that its other end has not read.
const (
	window = 256 << 10
	thin   = 1 << 10 // with Faults.Thin
)

// end is one end of a connection.
type end struct {
	net  *Network
	peer *end
	wake *sync.Cond // with the network's mu

	arrived  []piece // to be read here
	size     int     // of arrived
	closed   bool    // by this end
	lost     bool
	dead     bool // nothing arrives here but rest further bytes
	rest     int
	deadline [2]time.Time // of reads and of writes
}

// piece is a part of a write that is not read.
type piece struct {
	due   time.Time
	bytes []byte
}

// Read implements net.Conn.
func (e *end) Read(b []byte) (int, error) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	for {
		switch {
		case e.closed:
			return 0, net.ErrClosed
		case e.lost:
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		case e.expired(0):
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case e.net.faults.Hung > 0 || e.dead && e.rest == 0:
		case len(e.arrived) > 0 && !time.Now().Before(e.arrived[0].due):
			n := copy(b, e.arrived[0].bytes)
			if e.dead {
				n = min(n, e.rest)
				e.rest -= n
			}
			if e.arrived[0].bytes = e.arrived[0].bytes[n:]; len(e.arrived[0].bytes) == 0 {
				e.arrived = e.arrived[1:]
			}
			e.size -= n
			e.peer.wake.Broadcast()
			return n, nil
		case len(e.arrived) == 0 && e.peer.closed && !e.dead:
			return 0, io.EOF
		}
		e.wake.Wait()
	}
}

// Write implements net.Conn. It blocks while the window is full.
func (e *end) Write(b []byte) (sent int, err error) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	for len(b) > 0 {
		room := window - e.peer.size
		if e.net.faults.Thin > 0 {
			room = thin - e.peer.size
		}
		switch {
		case e.closed:
			return sent, net.ErrClosed
		case e.lost || e.peer.closed && !e.dead:
			return sent, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
		case e.expired(1):
			return sent, os.ErrDeadlineExceeded
		case room > 0:
			part := b[:min(len(b), room)]
			e.deliver(part)
			sent, b = sent+len(part), b[len(part):]
			continue
		}
		e.wake.Wait()
	}
	return sent, nil
}

// deliver sends bytes to the other end, after those that are on the line.
func (e *end) deliver(b []byte) {
	p := e.peer
	due := time.Now().Add(e.net.faults.Slow)
	if n := len(p.arrived); n > 0 && p.arrived[n-1].due.After(due) {
		due = p.arrived[n-1].due
	}
	p.arrived = append(p.arrived, piece{due, append([]byte(nil), b...)})
	p.size += len(b)
	e.wakeAt(p, due)
}

// wakeAt wakes an end now or later.
func (e *end) wakeAt(p *end, at time.Time) {
	p.wake.Broadcast()
	if d := time.Until(at); d > 0 {
		time.AfterFunc(d, func() {
			e.net.mu.Lock()
			defer e.net.mu.Unlock()
			p.wake.Broadcast()
		})
	}
}

func (e *end) expired(of int) bool {
	return !e.deadline[of].IsZero() && !time.Now().Before(e.deadline[of])
}

// Close implements net.Conn.
func (e *end) Close() error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.closed = true
	delete(e.net.open, e)
	e.wake.Broadcast()
	e.peer.wake.Broadcast()
	return nil
}

// LocalAddr and RemoteAddr implement net.Conn.
func (e *end) LocalAddr() net.Addr  { return e.net.Addr() }
func (e *end) RemoteAddr() net.Addr { return e.net.Addr() }

// SetDeadline implements net.Conn.
func (e *end) SetDeadline(t time.Time) error { return e.setDeadline(t, 0, 1) }

// SetReadDeadline implements net.Conn.
func (e *end) SetReadDeadline(t time.Time) error { return e.setDeadline(t, 0) }

// SetWriteDeadline implements net.Conn.
func (e *end) SetWriteDeadline(t time.Time) error { return e.setDeadline(t, 1) }

func (e *end) setDeadline(t time.Time, of ...int) error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	for _, i := range of {
		e.deadline[i] = t
	}
	if !t.IsZero() {
		e.wakeAt(e, t)
	} else {
		e.wake.Broadcast()
	}
	return nil
}
