package realvpp

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/codec"

	"github.com/contiv-agent/contiv-agent/sim"
)

// tap notes every request an agent sends, whatever VPP is at the other end.
type tap struct {
	dial func(context.Context) (net.Conn, error)

	mu  sync.Mutex
	log []api.Message
}

// Dial is for agent.Config.
func (t *tap) Dial(ctx context.Context) (net.Conn, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &tappedConn{Conn: c, tap: t}, nil
}

// take returns the writes since the last time.
func (t *tap) take() []api.Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.log
	t.log = nil
	return out
}

// tappedConn reads along: what comes in until the message table is known, and everything that goes out.
type tappedConn struct {
	net.Conn
	tap *tap

	mu      sync.Mutex
	in, out []byte
	types   map[uint16]reflect.Type // nil until the table has come
}

func (c *tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.types == nil {
		c.in = append(c.in, b[:n]...)
		var body []byte
		if body, c.in = nextMessage(c.in); body != nil {
			c.learn(body)
		}
	}
	return n, err
}

func (c *tappedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.out = append(c.out, b...)
	for {
		var body []byte
		if body, c.out = nextMessage(c.out); body == nil {
			break
		}
		c.note(body)
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

const frameHeader = 16

// nextMessage cuts one message off a stream of the socket API; nil: it is not complete.
func nextMessage(b []byte) (body, rest []byte) {
	if len(b) < frameHeader {
		return nil, b
	}
	end := frameHeader + int(binary.BigEndian.Uint32(b[8:]))
	if len(b) < end {
		return nil, b
	}
	return b[frameHeader:end], b[end:]
}

// learn reads the message table.
func (c *tappedConn) learn(body []byte) {
	reply := &memclnt.SockclntCreateReply{}
	c.in, c.types = nil, map[uint16]reflect.Type{}
	if codec.DecodeMsg(body, reply) != nil {
		return
	}
	known := map[string]reflect.Type{}
	for _, list := range api.GetRegisteredMessages() {
		for _, m := range list {
			known[m.GetMessageName()+"_"+m.GetCrcString()] = reflect.TypeOf(m).Elem()
		}
	}
	for _, e := range reply.MessageTable {
		if t := known[strings.TrimRight(e.Name, "\x00\x13")]; t != nil {
			c.types[e.Index] = t
		}
	}
}

func (c *tappedConn) note(body []byte) {
	t := c.types[binary.BigEndian.Uint16(body)]
	if t == nil {
		return // sockclnt_create
	}
	msg := reflect.New(t).Interface().(api.Message)
	if codec.DecodeMsg(body, msg) != nil || asks(msg) {
		return
	}
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	c.tap.log = append(c.tap.log, msg)
}

// asks reports whether a message changes nothing.
func asks(m api.Message) bool {
	if c, ok := m.(*vlib.CliInband); ok {
		return strings.HasPrefix(c.Cmd, "show ")
	}
	return !sim.Writes(m.GetMessageName())
}

// text is a message with interfaces by name: the same for two VPPs that number them differently.
func text(m api.Message, names map[uint32]string) string {
	v := reflect.New(reflect.TypeOf(m).Elem()).Elem()
	v.Set(reflect.ValueOf(m).Elem())
	var found []string
	name(v, names, &found)
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %s %s", m.GetMessageName(), b, strings.Join(found, " "))
}

// name takes the indices of interfaces out of a message and notes the names they stand for.
func name(v reflect.Value, names map[uint32]string, found *[]string) {
	if v.Type() == reflect.TypeFor[interface_types.InterfaceIndex]() {
		*found = append(*found, nameOf(uint32(v.Uint()), names))
		v.SetUint(0)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if p, ok := v.Addr().Interface().(*fib_types.FibPath); ok {
			*found = append(*found, nameOf(p.SwIfIndex, names))
			p.SwIfIndex = 0
			return
		}
		for i := range v.NumField() {
			name(v.Field(i), names, found)
		}
	case reflect.Slice:
		if v.Len() == 0 || v.Index(0).Kind() != reflect.Struct {
			return
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		v.Set(c)
		for i := range v.Len() {
			name(v.Index(i), names, found)
		}
	}
}

func nameOf(i uint32, names map[uint32]string) string {
	if i == ^uint32(0) {
		return "-"
	}
	if n, ok := names[i]; ok {
		return n
	}
	return fmt.Sprintf("gone:%d", i) // deleted since: its number is nobody's
}
