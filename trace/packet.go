package trace

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// The client's port and echo identifier: arbitrary numbers that are easy to recognise in hops.
const (
	clientPort = 40000
	pingID     = 4000
)

// firstPacket returns the packet that opens a connection or an association, requests an echo, or is a datagram.
func firstPacket(proto model.Protocol, src netip.Addr, to target) sim.Packet {
	p := sim.Packet{Src: src, Dst: to.addr, Proto: proto}
	if proto == model.ICMP {
		p.ICMPType, p.ICMPID = packet.EchoRequest, pingID
		return p
	}
	p.SrcPort, p.DstPort = clientPort, to.port
	return p.Opening()
}
