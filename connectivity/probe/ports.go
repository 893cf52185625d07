package probe

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Source ports of a pod's probes are chosen here, each once, because the kernel chooses per destination: of two connections with the same port, one to
// a Service and one to its endpoint, VPP cannot distinguish the answers, and a client that opens hundreds of them at once has such pairs.
const (
	firstPort = 32768 // as the kernel's own
	portCount = 28232
)

// nextPort is the number of the next port. It begins elsewhere each second, so that the next process does not meet the sessions of this one.
var nextPort = func() *atomic.Int64 {
	n := &atomic.Int64{}
	n.Store(time.Now().Unix() * 499)
	return n
}()

// dialFrom opens a connection from a port that no other probe has.
func dialFrom(ctx context.Context, network, to string, control func(network, address string, c syscall.RawConn) error) (net.Conn, error) {
	for range 100 {
		port := firstPort + int(nextPort.Add(1)%portCount)
		d := net.Dialer{Control: control, LocalAddr: &net.TCPAddr{Port: port}}
		if network == "udp" {
			d.LocalAddr = &net.UDPAddr{Port: port}
		}
		conn, err := d.DialContext(ctx, network, to)
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			return conn, err
		}
	}
	return nil, errors.New("no free source port")
}
