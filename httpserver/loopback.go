package httpserver

import (
	"net"
	"net/netip"
)

// Loopback reports whether only this machine can reach an address: a TCP address on loopback, or one of no network, as that of a unix
// socket.
func Loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// LoopbackHost reports whether a host, written as address or name, is this machine: localhost or a loopback address. Other names are
// not, whatever they stand for.
func LoopbackHost(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}
