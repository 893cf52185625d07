package outside

import (
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// TestWhatLeavesPasses: the overlay denies forged packets to all that the node takes, and none that it sends to other nodes.
func TestWhatLeavesPasses(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	n := &dataplane.Node{
		Own: []netip.Prefix{prefix("10.1.1.0/24"), prefix("fd00:1:1::/64")}, Hairpin: []netip.Addr{addr("10.1.1.254")},
		HostAddrs: []netip.Addr{addr("169.254.1.2")}, Addrs: []netip.Addr{addr("192.168.16.1")}, Frontends: []netip.Prefix{prefix("10.96.0.10/32")},
		Outer: []dataplane.Outer{{Addr: addr("192.168.16.2"), Proto: 6, Port: 30080}}, Uplink: "uplink", Overlay: "overlay", Host: "host",
	}
	from := Sources(n, n.HostAddrs)
	for _, p := range from {
		src := p.Addr()
		for _, c := range []struct {
			to   string
			port uint16
			home bool
		}{
			{"10.1.1.7", 80, true},
			{"10.96.0.10", 53, true},
			{"169.254.1.2", 80, true},
			{"192.168.16.1", 80, true},
			{"192.168.16.2", 30080, true},
			{"192.168.16.2", 6443, false},
			{"10.1.2.7", 80, false},
			{"fd00:1:1::7", 80, true},
			{"fd00:1:2::7", 80, false},
		} {
			dst := addr(c.to)
			if src.Is4() != dst.Is4() {
				continue
			}
			if got := denies(AtOverlay(n, from), src, dst, c.port); got != c.home {
				t.Errorf("overlay: %s to %s port %d is denied: %v", src, dst, c.port, got)
			}
			if !denies(AtUplink(from), src, dst, c.port) {
				t.Errorf("uplink: %s to %s port %d is not denied", src, dst, c.port)
			}
		}
	}
	if len(from) != 3 { // the NAT loopback is within the first range
		t.Errorf("sources %v", from)
	}
}

func denies(list []match.Atom, src, dst netip.Addr, port uint16) bool {
	for _, a := range list {
		if a.Src.Contains(src) && a.Dst.Contains(dst) && (a.Proto == 0 || a.Proto == 6) && a.DstPorts.Lo <= port && port <= a.DstPorts.Hi {
			return true
		}
	}
	return false
}
