package vpp

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

// echo is the simplest VPP: it answers every request of one id with a control_ping_reply, without decoding, so that a
// benchmark measures the client.
func echo(b *testing.B) func(context.Context) (net.Conn, error) {
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "api.sock"))
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = nc.Close() }()
		_ = serveEcho(nc)
	}()
	b.Cleanup(func() { _ = l.Close(); <-done })
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", l.Addr().String())
	}
}

func serveEcho(nc net.Conn) error {
	f := &fake{firstID: 100}
	c := &fakeConn{f: f, nc: nc, ids: map[string]uint16{}}
	i := uint16(100)
	for k := range newRegistryOnce.byKey {
		c.ids[k] = i
		i++
	}
	pong := c.ids[key(&memclnt.ControlPingReply{})]
	body, err := codec.EncodeMsg(&memclnt.ControlPingReply{VpePID: 1}, pong)
	if err != nil {
		return err
	}
	r, w := bufio.NewReaderSize(nc, 64<<10), bufio.NewWriterSize(nc, 64<<10)
	c.w = w
	header, answer := make([]byte, headerLen), make([]byte, headerLen+len(body))
	binary.BigEndian.PutUint32(answer[8:], uint32(len(body)))
	copy(answer[headerLen:], body)
	for first := true; ; first = false {
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(r, header); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(header[8:]))
		req, err := r.Peek(n)
		if err != nil {
			return err
		}
		if first {
			if err := c.greet(); err != nil {
				return err
			}
		} else {
			copy(answer[headerLen+2:headerLen+6], req[6:10])
			if _, err := w.Write(answer); err != nil {
				return err
			}
		}
		_, _ = r.Discard(n)
	}
}

// BenchmarkDo measures the client alone, per call: one call per Do (a round trip each), and pipelined batches.
func BenchmarkDo(b *testing.B) {
	for _, n := range []struct {
		name string
		size int
	}{{"sequential", 1}, {"pipelined-64", 64}, {"pipelined-1024", 1024}} {
		b.Run(n.name, func(b *testing.B) {
			c := up(b, nil, Config{Dial: echo(b)})
			calls := make([]Call, n.size)
			for i := range calls {
				calls[i] = Call{Msg: &memclnt.ControlPing{}}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i++; i%n.size == 0 {
					for _, r := range c.Do(context.Background(), calls...) {
						if r.Err != nil {
							b.Fatal(r.Err)
						}
					}
				}
			}
		})
	}
}

// BenchmarkGuard measures the guard's check of one change of an LB mapping with ten locals, sent and acknowledged.
func BenchmarkGuard(b *testing.B) {
	g := NewGuard()
	made := lb(many(10, 1)...)
	if err := g.Check(made); err != nil {
		b.Fatal(err)
	}
	g.Observe(made, Reply{})
	add, del := addLocal(99, 1), delLocal(99)
	b.ReportAllocs()
	for b.Loop() {
		for _, m := range [...]api.Message{add, del} {
			if err := g.Check(m); err != nil {
				b.Fatal(err)
			}
			g.Observe(m, Reply{})
		}
	}
}
