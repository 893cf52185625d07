package reach

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Connections returns where the established TCP connections lead that this network namespace has opened, in both families. With an error it returns
// those of the family that it could read.
func Connections() (out []netip.AddrPort, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, failed := netlink.SocketDiagTCP(family)
		if failed != nil {
			err = fmt.Errorf("sockets of this network namespace: %w", failed)
			continue
		}
		out = append(out, opened(sockets)...)
	}
	return out, err
}

// opened leaves out connections to this namespace's own servers.
func opened(sockets []*netlink.Socket) (out []netip.AddrPort) {
	serves := map[uint16]bool{}
	for _, s := range sockets {
		serves[s.ID.SourcePort] = serves[s.ID.SourcePort] || s.State == netlink.TCP_LISTEN
	}
	for _, s := range sockets {
		a, ok := netip.AddrFromSlice(s.ID.Destination)
		a = a.Unmap()
		if ok && s.State == netlink.TCP_ESTABLISHED && !serves[s.ID.SourcePort] && !a.IsLinkLocalUnicast() {
			out = append(out, netip.AddrPortFrom(a, s.ID.DestinationPort))
		}
	}
	return out
}
