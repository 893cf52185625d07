package sim

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

// client is the smallest binary-API client: one request at a time, or many written before their replies are read.
type client struct {
	t     testing.TB
	nc    net.Conn
	r     *bufio.Reader
	ids   map[string]uint16 // by name_crc
	types map[uint16]reflect.Type
	index uint32
	seq   uint32
	// unknown are names in the table without an imported binding: normal for a real VPP, a bug of the sim.
	unknown []string
	// events collects unsolicited messages.
	events []api.Message
}

// dial returns a client on a separate connection, after the handshake.
func dial(t testing.TB, v *VPP) *client {
	t.Helper()
	nc, err := v.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := shake(t, nc)
	if len(c.unknown) > 0 {
		t.Fatalf("the sim lists messages no binding knows: %v", c.unknown)
	}
	return c
}

func shake(t testing.TB, nc net.Conn) *client {
	t.Helper()
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil { // a missing answer fails the test, not the run
		t.Fatal(err)
	}
	c := &client{t: t, nc: nc, r: bufio.NewReader(nc), ids: map[string]uint16{}, types: map[uint16]reflect.Type{}}
	c.write(sockclntCreate, 123, &memclnt.SockclntCreate{Name: "test"})
	data, err := c.frame()
	if err != nil {
		t.Fatal(err)
	}
	reply := &memclnt.SockclntCreateReply{}
	if err := codec.DecodeMsg(data, reply); err != nil {
		t.Fatal(err)
	}
	if id, ctx := binary.BigEndian.Uint16(data), binary.BigEndian.Uint32(data[6:]); id != sockclntCreateRepl || ctx != 123 {
		t.Fatalf("handshake reply has id %d and context %d", id, ctx)
	}
	c.index = reply.Index
	known := map[string]reflect.Type{}
	for _, byName := range api.GetRegisteredMessages() {
		for n, m := range byName {
			known[n] = reflect.TypeOf(m).Elem()
		}
	}
	var unknown []string
	for _, e := range reply.MessageTable {
		name := strings.TrimRight(e.Name, "\x00")
		if known[name] == nil {
			unknown = append(unknown, name)
			continue
		}
		c.ids[name], c.types[e.Index] = e.Index, known[name]
	}
	c.unknown = unknown
	return c
}

func (c *client) write(id uint16, context uint32, m api.Message) {
	c.t.Helper()
	data, err := codec.EncodeMsg(m, id)
	if err != nil {
		c.t.Fatal(err)
	}
	if m.GetMessageType() == api.RequestMessage {
		binary.BigEndian.PutUint32(data[2:], c.index)
		binary.BigEndian.PutUint32(data[6:], context)
	} else {
		binary.BigEndian.PutUint32(data[2:], context)
	}
	c.raw(data)
}

func (c *client) raw(data []byte) {
	c.t.Helper()
	var header [16]byte
	binary.BigEndian.PutUint32(header[8:], uint32(len(data)))
	if _, err := c.nc.Write(append(header[:], data...)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) frame() ([]byte, error) {
	var header [16]byte
	if _, err := io.ReadFull(c.r, header[:]); err != nil {
		return nil, err
	}
	data := make([]byte, binary.BigEndian.Uint32(header[8:]))
	_, err := io.ReadFull(c.r, data)
	return data, err
}

// id returns the id of a message in this connection's table.
func (c *client) id(m api.Message) uint16 {
	c.t.Helper()
	id, ok := c.ids[nameCRC(m)]
	if !ok {
		c.t.Fatalf("%s is not in the message table", nameCRC(m))
	}
	return id
}

// ask writes a request and returns its context.
func (c *client) ask(m api.Message) uint32 {
	c.t.Helper()
	c.seq++
	c.write(c.id(m), c.seq, m)
	return c.seq
}

// next returns the next message other than an event, with its context.
func (c *client) next() (api.Message, uint32, error) {
	for {
		data, err := c.frame()
		if err != nil {
			return nil, 0, err
		}
		typ := c.types[binary.BigEndian.Uint16(data)]
		if typ == nil {
			return nil, 0, fmt.Errorf("message id %d is not in the table", binary.BigEndian.Uint16(data))
		}
		m := reflect.New(typ).Interface().(api.Message)
		if err := codec.DecodeMsg(data, m); err != nil {
			return nil, 0, err
		}
		if m.GetMessageType() == api.EventMessage {
			c.events = append(c.events, m)
			continue
		}
		return m, binary.BigEndian.Uint32(data[2:]), nil
	}
}

// call sends one request and returns its reply.
func call1[R api.Message](c *client, m api.Message) R {
	c.t.Helper()
	want := c.ask(m)
	got, ctx, err := c.next()
	if err != nil {
		c.t.Fatalf("%s: %v", m.GetMessageName(), err)
	}
	r, ok := got.(R)
	if !ok || ctx != want {
		c.t.Fatalf("%s: got %T with context %d, want context %d", m.GetMessageName(), got, ctx, want)
	}
	return r
}

// retval returns the retval of one request.
func (c *client) retval(m api.Message) int32 {
	c.t.Helper()
	return getRetval(call1[api.Message](c, m))
}

// must sends a request that must succeed.
func (c *client) must(list ...api.Message) {
	c.t.Helper()
	for _, m := range list {
		if rv := c.retval(m); rv != 0 {
			c.t.Fatalf("%s %+v: retval %d", m.GetMessageName(), m, rv)
		}
	}
}

// dump sends a multi-part request, ended by a control_ping.
func dump[D api.Message](c *client, m api.Message) []D {
	c.t.Helper()
	want := c.ask(m)
	end := c.ask(&memclnt.ControlPing{})
	var out []D
	for {
		got, ctx, err := c.next()
		if err != nil {
			c.t.Fatalf("%s: %v", m.GetMessageName(), err)
		}
		if ctx == end {
			return out
		}
		d, ok := got.(D)
		if !ok || ctx != want {
			c.t.Fatalf("%s: got %T with context %d", m.GetMessageName(), got, ctx)
		}
		out = append(out, d)
	}
}

// dead reports that the connection is closed.
func (c *client) dead() bool {
	_, err := c.frame()
	return err != nil
}
