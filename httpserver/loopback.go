package httpserver

import (
	"net"
	"net/netip"
)

// Loopback reports whether only this machine can reach an address: a TCP loopback address, or an address that is not TCP,
// such as a unix socket's.
func Loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// LoopbackHost reports whether a host, an address or a name, is this machine: "localhost" or a loopback address. It resolves
// no names: all other names are not this machine.
func LoopbackHost(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}
