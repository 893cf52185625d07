package wire

import (
	"net/netip"
	"time"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// patience is how soon VPP asks again (ip4_neighbor.c, ip6_neighbor.c: a throttle of a millisecond).
const patience = time.Millisecond

// mostAsked bounds what the edge remembers of its questions.
const mostAsked = 4096

// neighbor returns the Ethernet address that a packet goes to; false: it is not known, and VPP has asked. The packet is lost.
func (v *visit) neighbor(x *sim.Exit, p *sim.Port) (frame.MAC, bool) {
	if x.Next.IsMulticast() {
		return frame.GroupMAC(x.Next), true
	}
	if mac, known := v.g.Neighbor(x.Index, x.Next); known {
		return mac, true
	}
	if d, ok := frame.ParseDiscovery(x.Load.Bytes); ok && d.HasLink && d.Src == x.Next {
		return d.Link, true // the sender of the solicitation
	}
	v.drop(x.Index, "ip-neighbor: asked for, and the packet is lost")
	v.solicit(x.Index, p, x.Next)
	return frame.MAC{}, false
}

// solicit sends a request for an address.
func (v *visit) solicit(index uint32, p *sim.Port, a netip.Addr) {
	q := question{index, a}
	if last, known := v.asked[q]; known && v.now.Sub(last) < patience {
		return
	}
	if len(v.asked) >= mostAsked {
		clear(v.asked)
	}
	v.asked[q] = v.now
	own, ok := v.g.Source(index, a)
	switch {
	case a.Is6() && !p.Link6:
		v.drop(index, "ip6-discover-neighbor: not enabled for IPv6")
	case a.Is6():
		group := frame.Group(a)
		d := frame.Discovery{Kind: packet.NeighborSolicit, Src: frame.LinkLocal(p.MAC), Dst: group, Target: a, Link: p.MAC}
		v.make(index, p, &frame.Ethernet{Dst: frame.GroupMAC(group), Src: p.MAC, VLAN: p.VLAN, Type: frame.TypeIPv6, Payload: d.Bytes()})
	case !ok:
		v.drop(index, "ip4-arp: no source address")
	default:
		m := frame.ARP{Op: frame.Request, SenderMAC: p.MAC, Sender: own, Target: a}
		v.make(index, p, &frame.Ethernet{Dst: frame.Broadcast(), Src: p.MAC, VLAN: p.VLAN, Type: frame.TypeARP, Payload: m.Bytes()})
	}
}

// arp is arp-input and arp-reply.
func (v *visit) arp(index uint32, p *sim.Port, f *frame.Ethernet) {
	m, ok := frame.ParseARP(f.Payload)
	if !ok || m.SenderMAC != f.Src || m.Sender.IsUnspecified() || m.Op != frame.Request && m.Op != frame.Answer {
		v.drop(index, "arp-input: no valid message")
		return
	}
	answer, learn := v.g.Hears(index, m.Op == frame.Request, m.Sender, m.Target)
	if learn {
		v.g.Learn(index, m.Sender, m.SenderMAC)
	}
	if !answer {
		return
	}
	r := frame.ARP{Op: frame.Answer, SenderMAC: p.MAC, Sender: m.Target, TargetMAC: m.SenderMAC, Target: m.Sender}
	v.make(index, p, &frame.Ethernet{Dst: m.SenderMAC, Src: p.MAC, VLAN: p.VLAN, Type: frame.TypeARP, Payload: r.Bytes()})
}

// discovery learns from a message, and answers for the link-local address, which the engine does not have. It reports whether the message
// has been processed; the engine answers for other addresses, and drops those of an interface that is not enabled for IPv6.
func (v *visit) discovery(index uint32, p *sim.Port, d *frame.Discovery) bool {
	if !p.Takes6 {
		return false
	}
	who := d.Src
	if d.Kind == packet.NeighborAdvert {
		who = d.Target
	}
	if d.HasLink && !who.IsUnspecified() && v.g.OnLink(index, who) {
		v.g.Learn(index, who, d.Link)
	}
	if d.Kind == packet.NeighborAdvert {
		return true
	}
	if own := frame.LinkLocal(p.MAC); p.Link6 && d.Target == own && !d.Src.IsUnspecified() && d.HasLink {
		r := frame.Discovery{Kind: packet.NeighborAdvert, Src: own, Dst: d.Src, Target: own, Link: p.MAC}
		v.make(index, p, &frame.Ethernet{Dst: d.Link, Src: p.MAC, VLAN: p.VLAN, Type: frame.TypeIPv6, Payload: r.Bytes()})
		return true
	}
	return false
}
