package wire

import (
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// bytesOf returns the IP packet of an output; nil: there is none to send.
func bytesOf(o *sim.Output, p *sim.Port) []byte {
	l := o.Exit.Load
	switch {
	case o.Origin == sim.ICMPError:
		return l.Error(o.Packet, o.Exit.MTU, o.Exit.Ended)
	case o.Origin == sim.Answered && o.Packet.Proto == model.TCP:
		return l.Reset(o.Packet)
	case o.Origin == sim.Answered && o.Packet.ICMPType == packet.NeighborAdvert && o.Packet.Proto == model.ICMPv6:
		asked, ok := frame.ParseDiscovery(l.Bytes)
		if !ok || asked.Target != o.Packet.Src {
			return nil // the group is that of several addresses
		}
		d := frame.Discovery{Kind: packet.NeighborAdvert, Src: o.Packet.Src, Dst: o.Packet.Dst, Target: asked.Target, Link: p.MAC}
		return d.Bytes()
	}
	return append(l.As(o.Packet), l.Trail...)
}
