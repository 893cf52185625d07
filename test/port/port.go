// Package port finds TCP ports for servers that tests start.
package port

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
)

// Free uses ports below those that the kernel assigns to connections (ip_local_port_range): any program may get one of those
// between the search and the server's start, and again whenever the server is stopped.
const (
	lowest  = 12000
	highest = 32767
	// ranges is the file with the ports that Linux assigns to connections: the first and the last.
	ranges = "/proc/sys/net/ipv4/ip_local_port_range"
)

var next = struct {
	sync.Mutex
	port int // 0: not begun
}{}

// Free returns a TCP port without a listener, on any address, which it has not returned for a long time. Processes begin at
// random ports, so that two seldom get the same one. The test fails if there is no such port.
func Free(t interface{ Fatal(args ...any) }) int {
	last := highest
	if text, err := os.ReadFile(ranges); err == nil {
		var given int
		if _, err := fmt.Sscan(strings.TrimSpace(string(text)), &given); err == nil && given > lowest {
			last = min(last, given-1)
		}
	}
	next.Lock()
	defer next.Unlock()
	if next.port == 0 {
		next.port = lowest + rand.IntN(last-lowest+1)
	}
	for range last - lowest + 1 {
		p := next.port
		if next.port++; next.port > last {
			next.port = lowest
		}
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", p)); err == nil {
			_ = l.Close()
			return p
		}
	}
	t.Fatal("no TCP port is free")
	return 0
}

// Address returns an IPv4 address of loopback with such a port.
func Address(t interface{ Fatal(args ...any) }) string { return fmt.Sprintf("127.0.0.1:%d", Free(t)) }
