package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"

	"github.com/contiv-agent/contiv-agent/sim/stream"
)

// The ids of the handshake are fixed (vlibmemory/socket_api.c).
const (
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
	*stream.Stream
	v     *VPP
	epoch int
	index uint32
	name  string
	// eventsPID is the pid from want_interface_events, 0-based; wantsEvents reports whether the client subscribed. Guarded by v.mu.
	eventsPID   uint32
	wantsEvents bool
}

// Serve answers binary-API clients on l until ctx ends; it returns when all its connections are closed.
func (v *VPP) Serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
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
	c := &conn{v: v, Stream: stream.New(nc)}
	defer context.AfterFunc(ctx, c.Close)()
	if !v.addClient(c) {
		c.Close()
		return
	}
	defer v.removeClient(c)
	var wg sync.WaitGroup
	wg.Go(c.Write)
	_ = c.Read(c.receive) // an error concerns this client only
	c.Close()
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
		c.Close()
		delete(v.clients, c)
	}
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
	c.Queue(data)
}

// receive processes the messages of one read, with nothing between them: no packet, and no message of another client. An error ends the connection.
func (c *conn) receive(bodies [][]byte) error {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	for _, b := range bodies {
		if err := c.process(b); err != nil {
			return err
		}
	}
	return nil
}

// process processes a message. As in VPP, an unknown or truncated one is dropped without an answer (vlibapi/api_shared.c).
func (c *conn) process(body []byte) error {
	v := c.v
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
	c.sendMessage(sockclntCreateRepl, binary.BigEndian.Uint32(body[2:]), &memclnt.SockclntCreateReply{Index: c.index, Count: uint16(len(table)), MessageTable: table})
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
