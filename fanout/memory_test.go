package fanout

import (
	"fmt"
	"net"
	"runtime"
	"testing"

	"github.com/contiv-agent/contiv-agent/fanout/wire"
)

// TestIdleClientsAreCheap: what a connection holds while nothing happens, its client's half in this process included: no
// buffers for compression, no state of an encoder. A silent connection, from somebody who says nothing, holds even less.
func TestIdleClientsAreCheap(t *testing.T) {
	const many = 300
	s, addr := servingTCP(t, Config{})
	s.Tell(told(wire.InSync, kv("/k", "v")))
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	for _, c := range []struct {
		name string
		most uint64 // bytes of a connection
		talk func(net.Conn) error
	}{
		{"silent", 12 << 10, func(net.Conn) error { return nil }},
		{"in sync", 20 << 10, func(conn net.Conn) error {
			client := newClient(conn)
			if err := client.shake(hello("n")); err != nil {
				return err
			}
			return client.until(func() bool { return client.status == wire.InSync })
		}},
	} {
		before := used()
		var conns []net.Conn
		for range many {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			if err := c.talk(conn); err != nil {
				t.Fatal(err)
			}
		}
		for len(s.all()) < many {
			runtime.Gosched()
		}
		each := (max(used(), before) - before) / many
		if each > c.most {
			t.Errorf("%s: %d bytes for a connection, at most %d", c.name, each, c.most)
		}
		fmt.Fprintf(t.Output(), "%s: %d bytes\n", c.name, each)
		for _, conn := range conns {
			_ = conn.Close()
		}
		for len(s.all()) > 0 {
			runtime.Gosched()
		}
	}
}
