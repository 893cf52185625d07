package httpserver

import (
	"net"
	"sync"
)

// maxConns and maxConnsFrom bound the open connections of a listener: all of them, and those of one client address. The
// listener closes further connections at once, so that one client cannot starve the others.
const (
	maxConns     = 512
	maxConnsFrom = 32
)

// limited is a listener with these limits. Clients of a unix socket have no address: only maxConns applies to them.
type limited struct {
	net.Listener
	mu   sync.Mutex
	all  int
	from map[string]int
}

// Limit returns a listener that enforces these limits on l.
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
		if l.admit(host) {
			return &counted{Conn: conn, release: sync.OnceFunc(func() { l.releaseHost(host) })}, nil
		}
		_ = conn.Close() // the client gets no answer
	}
}

func (l *limited) admit(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxConns || host != "" && l.from[host] >= maxConnsFrom {
		return false
	}
	l.all++
	l.from[host]++
	return true
}

func (l *limited) releaseHost(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.from[host]--; l.from[host] == 0 {
		delete(l.from, host)
	}
}

// counted is a connection that counts towards the limits until it is closed.
type counted struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}
