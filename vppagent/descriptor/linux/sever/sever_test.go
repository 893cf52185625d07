package sever

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
)

// TestConnections: connections to a dead address end at once with an error, by IPv4, by IPv6, and to an IPv4 address by a socket of IPv6; others continue.
func TestConnections(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: ends connections of the network namespace")
	}
	for _, tc := range []struct {
		network, at string
		mapped      bool
	}{{"tcp4", "127.0.0.1:0", false}, {"tcp6", "[::1]:0", false}, {"tcp4", "127.0.0.1:0", true}} {
		l, err := net.Listen(tc.network, tc.at)
		if err != nil {
			t.Skip(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = c.Read(make([]byte, 1)); _, _ = c.Write([]byte("x")) }()
			}
		}()
		to := l.Addr().(*net.TCPAddr).AddrPort()
		c := dial(t, to, tc.mapped)
		for _, dead := range []bool{false, true} {
			n, err := Connections("/proc/self/ns/net", func(a netip.AddrPort) bool { return dead && a == to })
			if errors.Is(err, syscall.EOPNOTSUPP) {
				t.Skip("the kernel has no CONFIG_INET_DIAG_DESTROY")
			}
			if want := map[bool]int{true: 1}[dead]; err != nil || n != want {
				t.Fatalf("%+v: %d connections ended, %v, want %d", tc, n, err, want)
			}
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNABORTED) {
			t.Errorf("%+v: the connection is not aborted: %v", tc, err)
		}
	}
}

// dial connects, mapped: by a socket of IPv6 to an IPv4 address.
func dial(t *testing.T, to netip.AddrPort, mapped bool) *os.File {
	t.Helper()
	domain, sockaddr := syscall.AF_INET, syscall.Sockaddr(&syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(to.Port())})
	if mapped || to.Addr().Is6() {
		domain, sockaddr = syscall.AF_INET6, &syscall.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
	}
	fd, err := syscall.Socket(domain, syscall.SOCK_STREAM, 0)
	if err == nil {
		err = syscall.Connect(fd, sockaddr)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "connection")
	t.Cleanup(func() { f.Close() })
	return f
}
