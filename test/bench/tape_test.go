package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// The socket transport of VPP's binary API (vlibmemory/socket_api.c, VPP 24.06): 16 bytes of header, of which 8..11 are the
// length; a request begins with id, client index and context, a reply with id and context.
const (
	headerLen     = 16
	requestHeader = 10
	pingName      = "control_ping"
)

// recorder keeps all that goes through a connection.
type recorder struct {
	mu             sync.Mutex
	sent, received []byte
}

// record returns a dialer whose connections are recorded.
func (r *recorder) record(dial dialer) dialer {
	return func(ctx context.Context) (net.Conn, error) {
		nc, err := dial(ctx)
		return recorded{nc, r}, err
	}
}

type recorded struct {
	net.Conn
	r *recorder
}

func (c recorded) Write(b []byte) (int, error) {
	c.r.mu.Lock()
	c.r.sent = append(c.r.sent, b...)
	c.r.mu.Unlock()
	return c.Conn.Write(b)
}

func (c recorded) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.r.mu.Lock()
	c.r.received = append(c.r.received, b[:n]...)
	c.r.mu.Unlock()
	return n, err
}

// exchange is one request and what came back for it.
type exchange struct {
	name    string
	body    []byte
	msg     api.Message
	dump    bool // it was closed by a control_ping
	replies [][]byte
}

// write reports whether the request changes VPP.
func (e *exchange) write() bool {
	return !e.dump && sim.Writes(e.name)
}

// tape is a recorded connection, in order.
type tape struct {
	handshake []byte // VPP's answer to it
	pong      []byte
	list      []*exchange
}

// tape makes sense of what was recorded since the handshake. Nothing may be in flight.
func (r *recorder) tape(tb testing.TB) *tape {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, received := frames(r.sent), frames(r.received)
	t := &tape{handshake: received[0]}
	names := t.names(tb)
	byContext := map[uint32]*exchange{}
	for _, body := range sent[1:] {
		context := binary.BigEndian.Uint32(body[6:])
		name := names[binary.BigEndian.Uint16(body)]
		if e := byContext[context]; e != nil { // closed by a ping, or a cursor continues
			e.dump = e.dump || name.name == pingName
			continue
		}
		e := &exchange{name: name.name, body: body, msg: name.message(tb)}
		if err := codec.DecodeMsg(body, e.msg); err != nil {
			tb.Fatalf("%s: %v", e.name, err)
		}
		byContext[context] = e
		t.list = append(t.list, e)
	}
	for _, body := range received[1:] {
		switch name := names[binary.BigEndian.Uint16(body)].name; name {
		case pingName + "_reply":
			t.pong = body
		case "sw_interface_event": // nobody asked
		default:
			e := byContext[binary.BigEndian.Uint32(body[2:])]
			e.replies = append(e.replies, body)
		}
	}
	return t
}

func frames(stream []byte) (out [][]byte) {
	for len(stream) >= headerLen {
		n := headerLen + int(binary.BigEndian.Uint32(stream[8:]))
		out = append(out, stream[headerLen:n])
		stream = stream[n:]
	}
	return out
}

// messageType is one entry of the message table.
type messageType struct{ name, crc string }

func (m messageType) message(tb testing.TB) api.Message {
	tb.Helper()
	for _, list := range api.GetRegisteredMessages() {
		if found := list[m.name+"_"+m.crc]; found != nil {
			return reflect.New(reflect.TypeOf(found).Elem()).Interface().(api.Message)
		}
	}
	tb.Fatalf("message %s_%s is unknown", m.name, m.crc)
	return nil
}

func (t *tape) names(tb testing.TB) map[uint16]messageType {
	tb.Helper()
	reply := &memclnt.SockclntCreateReply{}
	if err := codec.DecodeMsg(t.handshake, reply); err != nil {
		tb.Fatal(err)
	}
	out := map[uint16]messageType{}
	for _, e := range reply.MessageTable {
		text := strings.TrimRight(e.Name, "\x00\x13")
		at := strings.LastIndexByte(text, '_')
		out[e.Index] = messageType{text[:at], text[at+1:]}
	}
	return out
}

// calls are the requests that fit, from the n-th exchange on, to be made again.
func (t *tape) calls(from int, fits func(*exchange) bool) (out []vpp.Call) {
	for _, e := range t.list[from:] {
		if fits(e) {
			out = append(out, vpp.Call{Msg: e.msg, Dump: e.dump})
		}
	}
	return out
}

// null is a peer that answers every request as it was answered on the tape: the n-th of equal requests as the n-th was, and
// later ones as the last.
type null struct {
	tape    *tape
	answers map[string][][][]byte
}

// question is what requests have to share for the same answer: all but client index and context.
func question(body []byte) []byte {
	q := body[requestHeader-2:] // two bytes of the context are overwritten by the id
	q[0], q[1] = body[0], body[1]
	return q
}

func newNull(t *tape) *null {
	n := &null{tape: t, answers: map[string][][][]byte{}}
	for _, e := range t.list {
		if e.name == pingName { // may come at any time: see answer
			continue
		}
		key := string(question(append([]byte(nil), e.body...)))
		n.answers[key] = append(n.answers[key], e.replies)
	}
	return n
}

// listen serves the tape on a socket until the test ends, each connection from its beginning.
func (t *tape) listen(tb testing.TB) dialer {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "null.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return // closed
			}
			wg.Go(func() { newNull(t).serve(nc) })
		}
	})
	tb.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return socket(path)
}

// serve answers until the client disconnects. It writes when there is nothing more to read, or a lot to write.
func (n *null) serve(nc net.Conn) {
	defer nc.Close()
	in := bufio.NewReaderSize(nc, 64<<10)
	out := bufio.NewWriterSize(nc, 64<<10)
	var header [headerLen]byte
	var body []byte
	for first := true; ; first = false {
		if _, err := io.ReadFull(in, header[:]); err != nil {
			return
		}
		size := int(binary.BigEndian.Uint32(header[8:]))
		if cap(body) < size {
			body = make([]byte, size)
		}
		body = body[:size]
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		if first {
			reply(out, n.tape.handshake, nil)
		} else {
			n.answer(out, body)
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

func (n *null) answer(out *bufio.Writer, body []byte) {
	var context [4]byte
	copy(context[:], body[6:])
	key := question(body)
	list, known := n.answers[string(key)]
	if !known { // a ping: all else is on the tape
		reply(out, n.tape.pong, context[:])
		return
	}
	for _, r := range list[0] {
		reply(out, r, context[:])
	}
	if len(list) > 1 {
		n.answers[string(key)] = list[1:]
	}
}

// reply sends a message of the tape with another context, nil: as it is.
func reply(out *bufio.Writer, body, context []byte) {
	var header [headerLen]byte
	binary.BigEndian.PutUint32(header[8:], uint32(len(body)))
	_, _ = out.Write(header[:]) // an error stays until Flush
	if context == nil {
		_, _ = out.Write(body)
		return
	}
	_, _ = out.Write(body[:2])
	_, _ = out.Write(context)
	_, _ = out.Write(body[6:])
}
