// Package stream turns a connection into messages of VPP's socket transport and back (vlibmemory/socket_api.c, VPP 24.06): each message has
// a header of 16 bytes, of which bytes 8 to 11 are the length.
//
// Invariant: messages that VPP would read at once are handed on together, and none while the other end leaves too many answers unread. A Stream that is
// closed sends nothing more. Its methods may be called concurrently, but only one goroutine reads, and one writes.
package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
)

const (
	frameHeader = 16
	maxFrame    = 16 << 20 // a longer message comes from a broken client
	maxBacklog  = 64 << 20 // replies a client may leave unread before its requests wait
	bufferSize  = 64 << 10
	atOnce      = 4096 // bytes that VPP reads at once (vl_socket_read_ready)
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

// Read hands messages to receive, in order, until one fails or the connection ends: those together that VPP would read at once. The bodies are valid until
// receive returns.
func (c *Stream) Read(receive func(bodies [][]byte) error) error {
	r := bufio.NewReaderSize(c.nc, bufferSize)
	var bodies [][]byte
	var long []byte // a message that exceeds the buffer
	for {
		size, err := nextSize(r)
		if err != nil {
			return err
		}
		if size > bufferSize {
			long = slices.Grow(long[:0], size)[:size]
			if _, err := io.ReadFull(r, long); err != nil {
				return err
			}
			bodies, size = append(bodies[:0], long[frameHeader:]), 0
		} else if bodies, size, err = together(r, bodies[:0], size); err != nil {
			return err
		}
		if err := receive(bodies); err != nil {
			return err
		}
		if _, err := r.Discard(size); err != nil {
			return err
		}
		if !c.drained() {
			return ErrClosed
		}
	}
}

// sizeOf returns the bytes of the message that begins with a header, with the header.
func sizeOf(header []byte) int { return frameHeader + int(binary.BigEndian.Uint32(header[8:12])) }

// nextSize waits for the header of the next message, and returns the message's bytes.
func nextSize(r *bufio.Reader) (int, error) {
	header, err := r.Peek(frameHeader)
	if err != nil {
		return 0, err
	}
	if n := sizeOf(header); n <= frameHeader+maxFrame {
		return n, nil
	}
	return 0, fmt.Errorf("message of %d bytes", sizeOf(header)-frameHeader)
}

// together returns the next message, of so many bytes, and those after it that have arrived whole and are read with it. They stay in the buffer: size is
// what to discard afterwards.
func together(r *bufio.Reader, bodies [][]byte, first int) (_ [][]byte, size int, err error) {
	if _, err := r.Peek(first); err != nil { // waits for it
		return nil, 0, err
	}
	rest, err := r.Peek(max(first, min(atOnce, r.Buffered())))
	for len(rest) >= frameHeader && sizeOf(rest) <= len(rest) {
		n := sizeOf(rest)
		bodies, rest, size = append(bodies, rest[frameHeader:n]), rest[n:], size+n
	}
	return bodies, size, err
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
