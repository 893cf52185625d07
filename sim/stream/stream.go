// Package stream turns a connection into messages of VPP's socket transport and back (vlibmemory/socket_api.c, VPP 24.06): each message has
// a header of 16 bytes, of which bytes 8 to 11 are the length.
//
// Invariant: messages are read one at a time, and none while the other end leaves too many answers unread. A Stream that is closed sends
// nothing more. Its methods may be called concurrently, but only one goroutine reads, and one writes.
package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

const (
	frameHeader = 16
	maxFrame    = 16 << 20 // a longer message comes from a broken client
	maxBacklog  = 64 << 20 // replies a client may leave unread before its requests wait
	bufferSize  = 64 << 10
)

// ErrClosed means that the connection was closed while answers were unread.
var ErrClosed = errors.New("connection closed")

// Stream is one connection.
type Stream struct {
	nc net.Conn

	mu     sync.Mutex
	wake   *sync.Cond
	out    []byte
	closed bool
}

// New returns a stream on a connection, which it owns.
func New(nc net.Conn) *Stream {
	c := &Stream{nc: nc}
	c.wake = sync.NewCond(&c.mu)
	return c
}

// Close closes the connection.
func (c *Stream) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	_ = c.nc.Close() // an error concerns nobody
	c.wake.Broadcast()
}

// Read hands messages to receive, in order, until one fails or the connection ends. The body is valid until receive returns.
func (c *Stream) Read(receive func(body []byte) error) error {
	r := bufio.NewReaderSize(c.nc, bufferSize)
	var header [frameHeader]byte
	var body []byte
	for {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(header[8:12])
		if n > maxFrame {
			return fmt.Errorf("message of %d bytes", n)
		}
		if cap(body) < int(n) {
			body = make([]byte, n)
		}
		body = body[:n]
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		if err := receive(body); err != nil {
			return err
		}
		if !c.drained() {
			return ErrClosed
		}
	}
}

// drained waits while the client has too much unread; false: the connection is closed.
func (c *Stream) drained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > maxBacklog && !c.closed {
		c.wake.Wait()
	}
	return !c.closed
}

// Write sends the queued messages until the stream is closed, so that replies of pipelined requests share a write.
func (c *Stream) Write() {
	var buf []byte
	for {
		c.mu.Lock()
		for len(c.out) == 0 && !c.closed {
			c.wake.Wait()
		}
		if c.closed {
			c.mu.Unlock()
			return
		}
		buf, c.out = c.out, buf[:0]
		c.wake.Broadcast()
		c.mu.Unlock()
		if _, err := c.nc.Write(buf); err != nil {
			c.Close()
			return
		}
	}
}

// Queue queues a message for Write.
func (c *Stream) Queue(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	var header [frameHeader]byte
	binary.BigEndian.PutUint32(header[8:12], uint32(len(data)))
	c.out = append(append(c.out, header[:]...), data...)
	c.wake.Broadcast()
}
