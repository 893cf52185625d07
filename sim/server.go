package sim

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

// The socket transport of VPP 24.06 (vlibmemory/socket_api.c): every message has a 16-byte header whose bytes 8..11 are the
// length; the ids of the handshake are fixed.
const (
	frameHeader        = 16
	maxFrame           = 16 << 20 // a longer message comes from a broken client
	maxBacklog         = 64 << 20 // replies a client may leave unread before its requests wait
	sockclntCreate     = 15
	sockclntCreateRepl = 16
	sockclntDelete     = 17
	sockclntDeleteRepl = 18
	firstID            = 100
	requestHeader      = 10 // id, client index, context
)

// errDown is the error of a connection while VPP is crashed.
var errDown = errors.New("vpp is down")

// conn is one client.
type conn struct {
	v     *VPP
	nc    net.Conn
	epoch int
	index uint32
	name  string
	// eventsPID is the pid from want_interface_events, 0-based; wantsEvents reports whether the client subscribed. Guarded by v.mu.
	eventsPID   uint32
	wantsEvents bool

	mu     sync.Mutex
	wake   *sync.Cond
	out    []byte
	closed bool
}

// Serve answers binary-API clients on l until ctx ends; it returns when all its connections are closed.
func (v *VPP) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		nc, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("accept binary API client: %w", err)
		}
		wg.Go(func() { v.serve(ctx, nc) })
	}
}

// Dial returns a connection without a socket; it lasts until either side closes it.
func (v *VPP) Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if v.Crashed() != nil {
		return nil, errDown
	}
	client, server := net.Pipe()
	v.conns.Go(func() { v.serve(context.WithoutCancel(ctx), server) })
	return client, nil
}

// serve runs one connection.
func (v *VPP) serve(ctx context.Context, nc net.Conn) {
	c := &conn{v: v, nc: nc}
	c.wake = sync.NewCond(&c.mu)
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	if !v.addClient(c) {
		_ = nc.Close()
		return
	}
	defer v.removeClient(c)
	var wg sync.WaitGroup
	wg.Go(c.writer)
	_ = c.reader() // an error concerns this client only
	c.close()
	wg.Wait()
}

func (v *VPP) addClient(c *conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.crashed != nil {
		return false
	}
	v.lastIdx++
	c.index, c.epoch = v.lastIdx, v.epoch
	v.clients[c] = struct{}{}
	return true
}

func (v *VPP) removeClient(c *conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.clients, c)
}

// cut closes every connection. The caller holds v.mu.
func (v *VPP) cut() {
	for c := range v.clients {
		c.close()
		delete(v.clients, c)
	}
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	_ = c.nc.Close()
	c.wake.Broadcast()
}

// reader reads requests in order. It answers each before it reads the next.
func (c *conn) reader() error {
	r := bufio.NewReaderSize(c.nc, 64<<10)
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
		if err := c.receive(body); err != nil {
			return err
		}
		if !c.drained() {
			return errDown
		}
	}
}

// writer sends the accumulated messages, so replies of pipelined requests share a write.
func (c *conn) writer() {
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
			c.close()
			return
		}
	}
}

// drained waits while the client has too much unread; false: the connection is closed.
func (c *conn) drained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > maxBacklog && !c.closed {
		c.wake.Wait()
	}
	return !c.closed
}

// sendMessage queues one message. The context's position depends on the kind of message.
func (c *conn) sendMessage(id uint16, context uint32, m api.Message) {
	data, err := codec.EncodeMsg(m, id)
	if err != nil {
		panic(fmt.Sprintf("sim: encode own %s: %v", m.GetMessageName(), err))
	}
	at := 2
	if m.GetMessageType() == api.RequestMessage { // only sockclnt_create_reply
		at = 6
	}
	binary.BigEndian.PutUint32(data[at:], context)
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

// receive processes one message. An error ends the connection. As in VPP, an unknown or truncated message is dropped without an
// answer (vlibapi/api_shared.c).
func (c *conn) receive(body []byte) error {
	v := c.v
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.crashed != nil || c.epoch != v.epoch {
		return errDown
	}
	if len(body) < 2 {
		return nil
	}
	switch id := binary.BigEndian.Uint16(body); id {
	case sockclntCreate:
		c.handshake(body)
	case sockclntDelete:
		return c.goodbye(body)
	default:
		if h := v.api.handler(id, c.epoch); h != nil && len(body) >= requestHeader {
			return v.handle(c, h, body)
		}
	}
	return nil
}

func (c *conn) handshake(body []byte) {
	req := &memclnt.SockclntCreate{}
	if codec.DecodeMsg(body, req) != nil {
		return
	}
	c.name = strings.TrimRight(req.Name, "\x00")
	table := c.v.api.table(c.epoch)
	reply := &memclnt.SockclntCreateReply{Index: c.index, Count: uint16(len(table)), MessageTable: table}
	c.sendMessage(sockclntCreateRepl, binary.BigEndian.Uint32(body[2:]), reply)
}

func (c *conn) goodbye(body []byte) error {
	req := &memclnt.SockclntDelete{}
	if codec.DecodeMsg(body, req) != nil {
		return nil
	}
	reply := &memclnt.SockclntDeleteReply{Response: 1}
	if req.Index != c.index {
		reply.Response = -1
	}
	c.sendMessage(sockclntDeleteRepl, binary.BigEndian.Uint32(body[6:]), reply)
	return nil // the client closes the connection
}
