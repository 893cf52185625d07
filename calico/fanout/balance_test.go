package fanout

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

func newBalancer(servers, nodes *int) *balancer {
	b := &balancer{cfg: Balance{Count: func() (int, int) { return *servers, *nodes }}}
	b.cfg.defaults()
	return b
}

// TestBalancer runs one server through a sequence of phases: seconds, connections, and the expected number of shed clients.
func TestBalancer(t *testing.T) {
	now := time.Unix(0, 0)
	servers, nodes := 3, 300
	b := newBalancer(&servers, &nodes)
	// run lets time pass and returns how many of the connections remain.
	run := func(seconds, conns int, back bool) int {
		for range seconds {
			now = now.Add(time.Second)
			if b.step(now, conns, conns) {
				host := fmt.Sprint(conns, now.Unix())
				b.let(now, host)
				if back {
					b.came(now, host)
				} else {
					conns--
				}
			}
		}
		return conns
	}
	check := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d connections, want %d", what, got, want)
		}
	}
	check("a fair share", run(600, 100, false), 100)
	check("a third more than its share", run(600, 139, false), 139)
	check("far too many, for a moment", run(20, 250, false), 250)
	check("it forgets", run(600, 139, false), 139)
	check("far too many", run(20, 250, false), 250)
	check("for half a minute", run(300, 250, false), 115)
	check("it rests", run(100, 250, false), 250)
	check("and goes on", run(600, 250, false), 115)
	servers = 1
	check("alone", run(3600, 1000, false), 1000)
	servers, nodes = 3, 0
	check("no node is known", run(3600, 1000, false), 1000)
	nodes = 300
	run(600, 100, false)
	shed := func(hours int) (n int) {
		for range hours * 3600 {
			now = now.Add(time.Second)
			if b.step(now, 250, 250) {
				n++
				host := fmt.Sprint(now.Unix())
				b.let(now, host)
				b.came(now, host)
			}
		}
		return n
	}
	first, later := shed(1), shed(24)
	if first > 30 || later > 60 {
		t.Errorf("everybody comes back, and %d clients are let go in the first hour, %d in the next day", first, later)
	}
}

// TestShareCountsConnectionsPerNode: if every node has two clients, the share is twice as large.
func TestShareCountsConnectionsPerNode(t *testing.T) {
	servers, nodes := 4, 100
	b := newBalancer(&servers, &nodes)
	for _, c := range []struct{ conns, hosts, want int }{{0, 0, 0}, {20, 20, 25}, {40, 20, 50}, {400, 200, 100}} {
		if got := b.fair(c.conns, c.hosts); got != c.want {
			t.Errorf("%d connections of %d hosts: share %d, want %d", c.conns, c.hosts, got, c.want)
		}
	}
}

// TestServerSheds: the server sheds the newest clients, down to a little above its share, and no host twice.
func TestServerSheds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := serving(t, Config{Balance: Balance{Servers: 2}})
		var kvs []wire.KV
		for i := range 20 {
			kvs = append(kvs, kv(fmt.Sprintf("%snodes/n%d", resources, i), "{}"))
		}
		s.Publish(batchOf(wire.InSync, kvs...))
		time.Sleep(time.Second)
		for i := range 20 {
			c := connected(t, l, hello(fmt.Sprint("n", i)))
			go func() { _ = c.until(func() bool { return false }) }()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if n := len(s.allConns()); n != 20 {
			t.Errorf("%d clients before it is sure", n)
		}
		time.Sleep(10 * time.Minute)
		left := s.allConns()
		if len(left) != 11 || left[10].host != "n10" {
			t.Errorf("%d clients are left, the newest %s; want the first 11", len(left), left[len(left)-1].host)
		}
	})
}

// TestHostIsShedOnce: a client that was shed and came back at once is not shed again, though it is the newest.
func TestHostIsShedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := serving(t, Config{Balance: Balance{Count: func() (int, int) { return 2, 8 }}})
		s.Publish(batchOf(wire.InSync))
		var mu sync.Mutex
		let := map[string]int{}
		for i := range 8 {
			host := fmt.Sprint("n", i)
			first := connected(t, l, hello(host))
			go func() {
				for c := first; ; {
					err := c.until(func() bool { return false })
					conn, refused := l.dial()
					if !errors.Is(err, io.EOF) || refused != nil {
						return // the test is over
					}
					mu.Lock()
					let[host]++
					mu.Unlock()
					defer conn.Close()
					if c = newClient(conn); c.shake(hello(host)) != nil {
						return
					}
				}
			}()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(60 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(let) < 2 {
			t.Errorf("let go: %v", let)
		}
		for host, times := range let {
			if times > 1 {
				t.Errorf("%s was let go %d times within a minute", host, times)
			}
		}
	})
}
