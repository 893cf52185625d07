package nattable

import (
	"net/netip"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// Frontends are the frontends of the desired values: addresses, ports and protocols that NAT44 or cnat translates.
type Frontends struct {
	count int // owned by the goroutine that calls Sent

	mu  sync.Mutex
	tcp map[netip.AddrPort]int // by NAT44, of TCP: how many values have it
}

// Sent takes note that a value was replaced by another; nil: there was none, or there is none any more.
func (f *Frontends) Sent(was, now proto.Message) {
	f.count += mappings(now) - mappings(was)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tcp == nil {
		f.tcp = map[netip.AddrPort]int{}
	}
	for difference, msg := range map[int]proto.Message{-1: was, 1: now} {
		for _, a := range natFrontends(msg) {
			if f.tcp[a] += difference; f.tcp[a] == 0 {
				delete(f.tcp, a)
			}
		}
	}
}

// HasTCP reports whether NAT44 translates connections of TCP to an address. Any goroutine may call it.
func (f *Frontends) HasTCP(a netip.AddrPort) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tcp[a] > 0
}

// Count returns their number, for the goroutine that calls Sent.
func (f *Frontends) Count() int { return f.count }

// natFrontends are the frontends of TCP of a value of NAT44.
func natFrontends(msg proto.Message) (out []netip.AddrPort) {
	d, ok := msg.(*nat.DNat44)
	if !ok {
		return nil
	}
	for _, m := range d.StMappings {
		if a, err := netip.ParseAddr(m.ExternalIp); err == nil && m.Protocol == nat.DNat44_TCP {
			out = append(out, netip.AddrPortFrom(a, uint16(m.ExternalPort)))
		}
	}
	return out
}

// mappings counts the frontends of a value.
func mappings(msg proto.Message) int {
	switch m := msg.(type) {
	case *nat.DNat44:
		return len(m.StMappings)
	case *cnat.Translation:
		return 1
	}
	return 0
}
