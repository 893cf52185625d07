package vpp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"

	// The fake announces the messages that are linked in.
	_ "go.fd.io/govpp/binapi/acl"
	_ "go.fd.io/govpp/binapi/cnat"
	_ "go.fd.io/govpp/binapi/nat44_ed"
	_ "go.fd.io/govpp/binapi/vlib"
	_ "go.fd.io/govpp/binapi/vpe"
)

// fake answers the binary API on net.Pipes, with as much of VPP as tests of the connection need.
type fake struct {
	// handle returns the answers to a request; nil: the request's own reply, empty. It runs on the connection's reader, so
	// it may block to play a busy VPP.
	handle func(c *fakeConn, req api.Message) []api.Message
	// firstID is the lowest announced id; lacks are names that are not announced.
	firstID uint16
	lacks   []string
	refuse  error // the error of Dial

	mu    sync.Mutex
	conns []*fakeConn
	wg    sync.WaitGroup
}

type fakeConn struct {
	f       *fake
	nc      net.Conn
	w       *bufio.Writer
	seen    []string          // names of all requests; guarded by f.mu
	ids     map[string]uint16 // name_crc → id
	types   map[uint16]api.Message
	context uint32 // of the request being handled
	alien   uint16 // if not 0, the id of the next answer
}

func newFake(t testing.TB) *fake {
	f := &fake{firstID: 100}
	if t != nil {
		t.Cleanup(f.close)
	}
	return f
}

func (f *fake) close() {
	f.cut()
	f.wg.Wait()
}

// cut closes every connection, as a VPP that crashes.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.nc.Close()
	}
	f.conns = nil
}

// requests returns the names of the newest connection's requests.
func (f *fake) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.conns[len(f.conns)-1].seen)
}

func (f *fake) dial(context.Context) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	client, server := net.Pipe()
	f.adopt(server)
	return client, nil
}

func (f *fake) adopt(nc net.Conn) {
	c := &fakeConn{f: f, nc: nc, w: bufio.NewWriterSize(nc, 32<<10), ids: map[string]uint16{}, types: map[uint16]api.Message{}}
	messages := api.GetRegisteredMessages()[preferred]
	var keys []string
	for key, m := range messages {
		if !slices.Contains(f.lacks, m.GetMessageName()) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for i, key := range keys {
		c.ids[key] = f.firstID + uint16(i)
		c.types[f.firstID+uint16(i)] = messages[key]
	}
	f.conns = append(f.conns, c)
	f.wg.Go(func() { _ = c.serve(); _ = nc.Close() })
}

func (c *fakeConn) serve() error {
	r := bufio.NewReaderSize(c.nc, 32<<10)
	for {
		if r.Buffered() == 0 {
			if err := c.w.Flush(); err != nil {
				return err
			}
		}
		header := make([]byte, headerLen)
		if _, err := io.ReadFull(r, header); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(header[8:]))
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		if err := c.request(body); err != nil {
			return err
		}
	}
}

func (c *fakeConn) request(body []byte) error {
	id := binary.BigEndian.Uint16(body)
	if id == sockclntCreate {
		return c.greet()
	}
	prototype := c.types[id]
	if prototype == nil {
		return errors.New("unknown id")
	}
	k := (&registry{byKey: newRegistryOnce.byKey}).kind(key(prototype), id)
	req := k.new()
	if err := codec.DecodeMsg(body, req); err != nil {
		return err
	}
	c.context = binary.BigEndian.Uint32(body[6:])
	c.f.mu.Lock()
	c.seen = append(c.seen, req.GetMessageName())
	handle := c.f.handle
	c.f.mu.Unlock()
	if handle == nil {
		handle = func(c *fakeConn, req api.Message) []api.Message { return c.plain(req) }
	}
	for _, m := range handle(c, req) {
		if err := c.send(m, c.context); err != nil {
			return err
		}
	}
	return nil
}

func key(m api.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }

// newRegistryOnce is one registry for all fakes: building it is slow under the race detector.
var newRegistryOnce = newRegistry()

// plain returns the empty reply to the request; none for dumps.
func (c *fakeConn) plain(req api.Message) []api.Message {
	r := registry{byKey: newRegistryOnce.byKey}
	for k, id := range c.ids {
		if kk := r.kind(k, id); kk.name == req.GetMessageName()+"_reply" {
			return []api.Message{kk.new()}
		}
	}
	return nil
}

func (c *fakeConn) greet() error {
	reply := &memclnt.SockclntCreateReply{Index: 7}
	for k, id := range c.ids {
		reply.MessageTable = append(reply.MessageTable, memclnt.MessageTableEntry{Index: id, Name: k})
	}
	reply.Count = uint16(len(reply.MessageTable))
	data, err := codec.EncodeMsg(reply, sockclntCreate+1)
	if err != nil {
		return err
	}
	return c.raw(data)
}

func (c *fakeConn) send(m api.Message, context uint32) error {
	id := c.ids[key(m)]
	if c.alien != 0 {
		id, c.alien = c.alien, 0
	}
	data, err := codec.EncodeMsg(m, id)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(data[2:], context)
	return c.raw(data)
}

func (c *fakeConn) raw(data []byte) error {
	out, body := frame(nil, len(data))
	copy(body, data)
	_, err := c.w.Write(out)
	return err
}

// up runs a Conn to f until the test ends, and waits until it is connected.
func up(t testing.TB, f *fake, cfg Config) *Conn {
	t.Helper()
	connected := make(chan struct{}, 64)
	old := cfg.OnState
	cfg.OnState = func(s State) {
		if old != nil {
			old(s)
		}
		if s.Connected {
			select {
			case connected <- struct{}{}:
			default:
			}
		}
	}
	if cfg.Dial == nil {
		cfg.Dial = f.dial
	}
	c := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case <-connected:
	case <-time.After(10 * time.Second):
		t.Fatalf("not connected: %+v", c.State())
	}
	return c
}

type interfaceIndex = interface_types.InterfaceIndex

type netConn = net.Conn

func pipe() (client, server net.Conn) { return net.Pipe() }
