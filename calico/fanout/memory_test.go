package fanout

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// TestIdleClientsAreCheap measures the memory of an idle connection, including the client's half in this process. An idle
// connection holds no compression buffers, no encoder state, and no stack that grew by compressing or verifying a
// certificate. A connection without a hello holds even less.
func TestIdleClientsAreCheap(t *testing.T) {
	const many = 200
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection halves oversized stacks
	authority := newIssuer(t)
	authority.sign("server", &x509.Certificate{})
	authority.sign("client", &x509.Certificate{})
	secured, err := authority.files("server", wire.Peer{}).Config()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(authority.path("client.pem"), authority.path("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	inSync := func(conn net.Conn) (*client, error) {
		c := newClient(conn)
		if err := c.shake(hello("n")); err != nil {
			return c, err
		}
		return c, c.until(func() bool { return c.status == wire.InSync })
	}
	for _, c := range []struct {
		name    string
		tls     *tls.Config
		most    uint64 // bytes per connection
		talk    func(net.Conn) (*client, error)
		changes int
	}{
		{name: "silent", most: 12 << 10, talk: func(conn net.Conn) (*client, error) { return newClient(conn), nil }},
		{name: "in sync", most: 20 << 10, talk: inSync},
		{name: "in sync, after changes", most: 20 << 10, talk: inSync, changes: many},
		{name: "in sync, with TLS", tls: secured, most: 36 << 10, talk: func(conn net.Conn) (*client, error) {
			return inSync(tls.Client(conn, &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}))
		}},
	} {
		s, addr := servingTCP(t, Config{TLS: c.tls})
		s.Publish(batchOf(wire.InSync, kv("/k", "v")))
		before := used()
		var conns []net.Conn
		var clients []*client
		for range many {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			client, err := c.talk(conn)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, client)
		}
		for len(s.allConns()) < many {
			runtime.Gosched()
		}
		for i := range c.changes {
			value := strings.Repeat(fmt.Sprintf("%04d", i), 100)
			s.Publish(batchOf(wire.InSync, kv("/k", value)))
			for _, client := range clients {
				if err := client.until(func() bool { return client.keys["/k"] == value }); err != nil {
					t.Fatal(err)
				}
			}
		}
		each := (max(used(), before) - before) / many
		if each > c.most {
			t.Errorf("%s: %d bytes for a connection, at most %d", c.name, each, c.most)
		}
		fmt.Fprintf(t.Output(), "%s: %d bytes\n", c.name, each)
		for _, conn := range conns {
			_ = conn.Close()
		}
		for len(s.allConns()) > 0 {
			runtime.Gosched()
		}
	}
}
