package httpserver

import (
	"net"
	"sync"
)

// Limits of a listener: connections at a time, and those of one client address. What is beyond is closed at once, so that one neighbour
// keeps no other from an answer.
const (
	maxConns     = 512
	maxConnsFrom = 32
)

// limited is a listener with these limits. Clients of a unix socket have no address: only the first limit is theirs.
type limited struct {
	net.Listener
	mu   sync.Mutex
	all  int
	from map[string]int
}

// Limit returns the listener within these limits.
func Limit(l net.Listener) net.Listener { return limit(l) }

func limit(l net.Listener) *limited { return &limited{Listener: l, from: map[string]int{}} }

// Accept returns the next connection within the limits.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := ""
		if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			host = tcp.IP.String()
		}
		if l.take(host) {
			return &counted{Conn: conn, release: sync.OnceFunc(func() { l.release(host) })}, nil
		}
		_ = conn.Close() // it gets no answer
	}
}

func (l *limited) take(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxConns || host != "" && l.from[host] >= maxConnsFrom {
		return false
	}
	l.all++
	l.from[host]++
	return true
}

func (l *limited) release(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.from[host]--; l.from[host] == 0 {
		delete(l.from, host)
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}
