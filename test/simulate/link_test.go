package simulate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// The socket transport of VPP: a header of 16 bytes, of which bytes 8 to 11 are the length; then id, and in answers the context.
const (
	frameHeader   = 16
	answerContext = frameHeader + 2
)

// link is the network between one agent and its VPP: a listener for the VPP, and dial for the agent. Its faults apply to connections of
// the agent.
type link struct {
	mu     sync.Mutex
	wake   *sync.Cond
	accept []net.Conn
	ended  bool
	pairs  []*pair

	down  int           // faults that keep VPP away: nothing listens
	hung  int           // faults in which VPP reads nothing
	slow  time.Duration // VPP needs that for each request
	lose  []*int        // how many details of dumps get lost, after the first of each dump, by fault
	traps []*trap
	read  uint64 // requests that VPP has read
}

// trap is what happens before the request after the next left ones, once.
type trap struct {
	left   int
	spring func() // with mu held
}

// after sets a trap. Each has its effect, also if another is set on the same link.
func (l *link) after(left int, spring func()) {
	l.setFault(func(l *link) { l.traps = append(l.traps, &trap{left, spring}) })
}

func newLink() *link {
	l := &link{}
	l.wake = sync.NewCond(&l.mu)
	return l
}

// setFault changes the faults.
func (l *link) setFault(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
	l.wake.Broadcast()
}

// isDown reports whether VPP is away.
func (l *link) isDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down > 0
}

// requests is the number of requests that VPP has read.
func (l *link) requests() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read
}

// pair is one connection: what each end has sent, and the other has not read.
type pair struct {
	toVPP, toAgent bytes.Buffer
	closed         bool
	frame          int       // bytes that VPP has still to read of the frame that it is reading
	deadline       time.Time // of the agent's calls
	last           [6]byte   // id and context of the last answer
}

// Dial returns the agent's end of a new connection.
func (l *link) Dial(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down > 0 || l.ended {
		return nil, errors.New("nothing listens")
	}
	p := &pair{}
	l.pairs = append(l.pairs, p)
	l.accept = append(l.accept, end{l, p, true})
	l.wake.Broadcast()
	return end{l, p, false}, ctx.Err()
}

// Accept implements net.Listener.
func (l *link) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.accept) == 0 && !l.ended {
		l.wake.Wait()
	}
	if l.ended {
		return nil, net.ErrClosed
	}
	c := l.accept[0]
	l.accept = l.accept[1:]
	return c, nil
}

// Close implements net.Listener.
func (l *link) Close() error {
	l.setFault(func(l *link) { l.ended = true })
	return nil
}

// Addr implements net.Listener.
func (l *link) Addr() net.Addr { return &net.UnixAddr{} }

// sever ends all connections: bytes that the other end has not read are lost. The caller holds mu.
func (l *link) sever() {
	for _, p := range l.pairs {
		p.closed = true
		p.toVPP.Reset()
		p.toAgent.Reset()
	}
	l.pairs = nil
	l.wake.Broadcast()
}

// end is one end of a connection.
type end struct {
	*link
	p   *pair
	vpp bool
}

// Read implements net.Conn. VPP gets one request at a time.
func (e end) Read(b []byte) (int, error) {
	if e.vpp {
		return e.readRequest(b)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.p.toAgent.Len() == 0 {
		switch {
		case e.p.closed:
			return 0, io.EOF
		case e.expired():
			return 0, os.ErrDeadlineExceeded
		}
		e.wake.Wait()
	}
	return e.p.toAgent.Read(b)
}

func (e end) expired() bool { return !e.p.deadline.IsZero() && !time.Now().Before(e.p.deadline) }

func (e end) readRequest(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.p.closed && (e.hung > 0 || e.p.toVPP.Len() == 0) {
		e.wake.Wait()
	}
	if e.p.frame == 0 && !e.p.closed {
		e.p.frame = frameHeader + int(binary.BigEndian.Uint32(e.p.toVPP.Bytes()[8:])) // a Write has whole frames
		e.read++
		e.countDown()
		if d := e.slow; d > 0 {
			e.mu.Unlock()
			time.Sleep(d)
			e.mu.Lock()
		}
	}
	if e.p.closed {
		return 0, io.EOF
	}
	n, err := e.p.toVPP.Read(b[:min(len(b), e.p.frame)])
	e.p.frame -= n
	return n, err
}

// countDown springs the traps whose requests have been read.
func (l *link) countDown() {
	var sprung []*trap
	l.traps = slices.DeleteFunc(l.traps, func(t *trap) bool {
		if t.left--; t.left <= 0 {
			sprung = append(sprung, t)
		}
		return t.left <= 0
	})
	for _, t := range sprung {
		t.spring()
	}
}

// Write implements net.Conn. It never blocks.
func (e end) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.p.closed {
		return 0, io.ErrClosedPipe
	}
	if e.vpp {
		e.answer(b)
	} else {
		e.p.toVPP.Write(b)
	}
	e.wake.Broadcast()
	return len(b), nil
}

// lowestContext is less than the contexts of all requests (package vpp). Events have the index of the client in their place, which is small.
const lowestContext = 1 << 12

// answer sends VPP's frames to the agent. It loses details: frames with id and context of the frame before them; never events, of which two in a row look alike.
func (e end) answer(b []byte) {
	for len(b) > 0 {
		n := frameHeader + int(binary.BigEndian.Uint32(b[8:]))
		id := [6]byte(b[frameHeader : answerContext+4])
		event := binary.BigEndian.Uint32(b[answerContext:]) < lowestContext
		if event || id != e.p.last || !e.loses() {
			e.p.toAgent.Write(b[:n])
		}
		e.p.last, b = id, b[n:]
	}
}

// loses counts a detail that gets lost.
func (l *link) loses() bool {
	for _, left := range l.lose {
		if *left > 0 {
			*left--
			return true
		}
	}
	return false
}

// hasten lets what is left of the traps happen soon, before the quiet time has passed.
func (l *link) hasten() {
	for _, t := range l.traps {
		t.left = min(t.left, 8)
	}
}

// Close implements net.Conn.
func (e end) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.p.closed = true
	for i, p := range e.pairs {
		if p == e.p {
			e.pairs = append(e.pairs[:i:i], e.pairs[i+1:]...)
			break
		}
	}
	e.wake.Broadcast()
	return nil
}

// SetDeadline implements net.Conn, for the agent's end.
func (e end) SetDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.p.deadline = t
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), e.wake.Broadcast)
	}
	return nil
}

// LocalAddr and the others are not used.
func (e end) LocalAddr() net.Addr                { return e.Addr() }
func (e end) RemoteAddr() net.Addr               { return e.Addr() }
func (e end) SetReadDeadline(t time.Time) error  { return e.SetDeadline(t) }
func (e end) SetWriteDeadline(t time.Time) error { return e.SetDeadline(t) }
