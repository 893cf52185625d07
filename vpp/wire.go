package vpp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

// The socket transport (vlibmemory/socket_api.c, VPP 24.06): each message follows a 16-byte header whose bytes 8..11 are
// its length; everything is big-endian. The ids of the handshake's messages are fixed; the handshake announces all others.
const (
	headerLen      = 16
	requestHeader  = 10 // id 2, client index 4, context 4
	replyHeader    = 6  // id 2, context 4 (events: id 2, client index 4)
	sockclntCreate = 15
	readBuffer     = 64 << 10
	maxMessage     = 64 << 20 // larger than any message of VPP: the peer is not VPP
)

// wire is the socket with its framing. One goroutine reads, one writes.
type wire struct {
	nc    net.Conn
	r     *bufio.Reader
	big   []byte
	heard atomic.Int64 // when the last byte arrived, in nanoseconds since began: the wall clock may be set
	began time.Time
	// skip is how many bytes of r the last message still occupies.
	skip int
}

func newWire(nc net.Conn) *wire {
	w := &wire{nc: nc, began: time.Now()}
	w.r = bufio.NewReaderSize(readerFunc(func(b []byte) (int, error) {
		n, err := nc.Read(b)
		w.heard.Store(int64(time.Since(w.began)))
		return n, err
	}), readBuffer)
	return w
}

func (w *wire) lastByte() time.Time { return w.began.Add(time.Duration(w.heard.Load())) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// nextMessage returns the next message, valid until the following call. It does not copy messages that fit into the buffer.
func (w *wire) nextMessage() ([]byte, error) {
	if w.skip > 0 {
		_, _ = w.r.Discard(w.skip)
		w.skip = 0
	}
	header, err := w.r.Peek(headerLen)
	if err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(header[8:12]))
	if n > maxMessage {
		return nil, fmt.Errorf("message of %d bytes", n)
	}
	if n < replyHeader {
		return nil, fmt.Errorf("message of %d bytes has no header", n)
	}
	if headerLen+n <= readBuffer {
		b, err := w.r.Peek(headerLen + n)
		if err != nil {
			return nil, err
		}
		w.skip = headerLen + n
		return slices.Clip(b[headerLen:]), nil // clipped: a decoder must not read from a truncated message into the next one
	}
	_, _ = w.r.Discard(headerLen)
	if cap(w.big) < n {
		w.big = make([]byte, n)
	}
	_, err = io.ReadFull(w.r, w.big[:n])
	return slices.Clip(w.big[:n]), err
}

// more reports whether another complete message is buffered, so that reading it does not block.
func (w *wire) more() bool {
	have := w.r.Buffered() - w.skip
	if have < headerLen {
		return false
	}
	b, err := w.r.Peek(w.skip + headerLen)
	if err != nil {
		return false
	}
	return have >= headerLen+int(binary.BigEndian.Uint32(b[w.skip+8:]))
}

// frame appends room for a message of n bytes, all zero, and returns it beside the longer buffer.
func frame(out []byte, n int) (longer, body []byte) {
	at := len(out)
	total := headerLen + n
	if cap(out)-at < total {
		out = append(out[:at], make([]byte, total)...)
	} else {
		out = out[:at+total]
		clear(out[at:])
	}
	binary.BigEndian.PutUint32(out[at+8:], uint32(n))
	return out, out[at+headerLen:]
}

// handshake registers this client and returns VPP's message table (name_crc → id) and the client index.
func (w *wire) handshake(name string) (map[string]uint16, uint32, error) {
	req := &memclnt.SockclntCreate{Name: name}
	data, err := codec.EncodeMsg(req, sockclntCreate)
	if err != nil {
		return nil, 0, err
	}
	out, body := frame(nil, len(data))
	copy(body, data)
	if _, err := w.nc.Write(out); err != nil {
		return nil, 0, err
	}
	answer, err := w.nextMessage()
	if err != nil {
		return nil, 0, err
	}
	if id := binary.BigEndian.Uint16(answer); id != sockclntCreate+1 {
		return nil, 0, fmt.Errorf("sockclnt_create answered by message %d", id)
	}
	reply := &memclnt.SockclntCreateReply{}
	if err := codec.DecodeMsg(answer, reply); err != nil {
		return nil, 0, err
	}
	if reply.Response != 0 {
		return nil, 0, fmt.Errorf("sockclnt_create refused with %d", reply.Response)
	}
	table := make(map[string]uint16, len(reply.MessageTable))
	for _, e := range reply.MessageTable {
		// VPP ends the 64-byte name with NUL; older versions also with a stray 0x13.
		table[strings.TrimRight(e.Name, "\x00\x13")] = e.Index
	}
	if len(table) == 0 {
		return nil, 0, errors.New("empty message table")
	}
	return table, reply.Index, nil
}
