package realvpp

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

var (
	aclAddrs = []string{
		"10.1.1.2", "10.1.1.3", "10.1.2.2", "192.168.16.1", "192.168.16.2", "198.51.100.7", "10.96.0.10", "169.254.1.1", "10.1.1.254", "10.14.0.1",
	}
	aclAddrs6 = []string{
		"fd00:1:1::2", "fd00:1:1::3", "fd00:1:2::2", "fd00:16::1", "fd00:16::2", "2001:db8::7", "fd00:e::1", "fd00:e::9", "fd00:1:1:0:8000::9",
	}
)

func (a *aclCase) addr() netip.Addr {
	if a.six {
		return netip.MustParseAddr(aclAddrs6[a.rng.IntN(len(aclAddrs6))])
	}
	return netip.MustParseAddr(aclAddrs[a.rng.IntN(len(aclAddrs))])
}

// door is one of the interfaces.
func (a *aclCase) door() string {
	return append(doors[:len(doors):len(doors)], edge)[a.rng.IntN(len(doors)+1)]
}

// traffic is a new connection, or more of one that was.
func (a *aclCase) traffic() error {
	if len(a.talks) > 0 && a.chance(2) {
		return a.goOn(a.talks[a.rng.IntN(len(a.talks))])
	}
	src, dst := a.addr(), a.addr()
	in := a.door()
	if !a.chance(5) { // by the right one
		in = map[string]string{
			"10.1.1.2": door(podA), "10.1.1.3": door(podB), "10.1.2.2": "overlay", "192.168.16.1": "host", "10.14.0.1": edge,
			"fd00:1:1::2": door(podA), "fd00:1:1::3": door(podB), "fd00:1:2::2": "overlay", "fd00:16::1": "host", "fd00:e::9": edge,
		}[src.String()]
		if in == "" {
			in = "uplink"
		}
	}
	a.port++
	if a.six && a.chance(8) {
		return a.discover()
	}
	return a.talk(in, a.arrange(src, dst))
}

// discover asks VPP for its address, or sends it one. (VPP would have to ask back for a host that it does not know: only neighbours ask.)
func (a *aclCase) discover() error {
	p := packet.Packet{
		Src: netip.MustParseAddr("fd00:e::9"), Dst: netip.MustParseAddr("fd00:e::1"), Proto: model.ICMPv6, ICMPType: packet.NeighborSolicit, TTL: 255,
	}
	in := edge
	switch a.rng.IntN(6) {
	case 0:
		p.TTL = 64
	case 1:
		p.ICMPType = packet.NeighborAdvert
	case 2:
		in, p.Src = door(podA), netip.MustParseAddr("fd00:1:1::2")
	case 3:
		in = door(podB)
	}
	_, err := a.transmit(in, same(p))
	return err
}

func (a *aclCase) arrange(src, dst netip.Addr) packet.Packet {
	ports := []uint16{53, 80, 80, 81, 8080}
	from, to := netip.AddrPortFrom(src, a.port), netip.AddrPortFrom(dst, ports[a.rng.IntN(len(ports))])
	if a.chance(6) {
		from = netip.AddrPortFrom(src, ports[a.rng.IntN(len(ports))])
	}
	p := packet.NewTCP(from, to)
	switch a.rng.IntN(10) {
	case 0:
		p = packet.NewPing(src, dst, a.port)
	case 1, 2, 3:
		p = packet.NewUDP(from, to)
	case 4, 5:
		p = packet.NewUDP(from, to)
		p.Proto = model.SCTP
	case 6:
		p.TCPFlags = []uint8{packet.ACK, packet.RST, packet.SYN | packet.ACK}[a.rng.IntN(3)]
	}
	if a.chance(12) {
		p.TTL = 1
	}
	return p
}
