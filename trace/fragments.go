package trace

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

const (
	mostFragments = 16
	// fragmentLife is how long a kernel of Linux waits for the rest of a datagram (net.ipv4.ipfrag_time).
	fragmentLife = 30 * time.Second
	mostArrived  = 1024 // datagrams in parts; kernels forget some, too, when they have too many
)

// fragments returns the fragments that a step sends in place of its packet; nil: it sends the packet whole.
func fragments(c *Cluster, s *Step, p *sim.Packet) ([]sim.Packet, error) {
	switch {
	case s.Fragments == 0 && s.Only != "":
		return nil, fmt.Errorf("only: %q: needs fragments", s.Only)
	case s.Fragments == 0 && s.Identification != 0:
		return nil, fmt.Errorf("identification: %d: needs fragments", s.Identification)
	case s.Fragments == 0:
		return nil, nil
	case s.Fragments < 2 || s.Fragments > mostFragments:
		return nil, fmt.Errorf("fragments: %d: must be 2 to %d", s.Fragments, mostFragments)
	}
	id := s.Identification
	if id == 0 {
		c.given++
		id = c.given
	}
	parts, known := packet.Pick(packet.Split(p, s.Fragments, id), s.Only)
	if !known {
		return nil, fmt.Errorf("only: %q: must be first, later or reversed", s.Only)
	}
	return parts, nil
}

// datagram identifies a datagram at its receiver, whose kernel collects the fragments.
type datagram struct {
	at       string // the receiver
	node     string // its node; outside: that of the uplink
	src, dst netip.Addr
	proto    model.Protocol
	id       uint16
}

// pieces are the fragments of a datagram that have arrived.
type pieces struct {
	packet.Reassembly
	since   time.Time
	changed bool // cnat took data for ports, and changed it
}

// deliver follows a packet, or its fragments: the journey ends where the datagram becomes whole.
func deliver(c *Cluster, j *journey, s *sending) {
	if s.parts == nil {
		c.walk(j, s.from, s.packet)
		return
	}
	var whole *journey
	var lost journey // the first one of those that did not arrive
	at := place{}
	arrived := 0
	for i := range s.parts {
		for _, end := range walkAll(c, j, s.from, s.parts[i]) {
			switch {
			case end.lost != "" && lost.lost == "":
				lost = end
			case end.lost != "":
			case end.packet.IsICMPError():
				whole = &end
			default:
				arrived++
				at, j.packet = end.end, end.packet
				got, p, done := collect(c, &end)
				switch {
				case done && got.changed && !j.quiet: // a sender that wants it delivered omits the checksum
					lost = journey{packet: p, lost: at.String() + " drops the datagram: VPP's cnat took bytes of a later fragment for ports, and changed them"}
				case done:
					end.packet = p
					whole = &end
				}
			}
			if s.parts[i].Fragment.Offset == 0 && !end.packet.Fragment.Later() {
				j.first = &end
			}
		}
	}
	if whole != nil {
		j.end, j.packet, j.whole = whole.end, whole.packet, true
		return
	}
	j.pieces, j.lost = arrived, lost.lost
	switch {
	case arrived == 0 && lost.lost != "":
		j.packet, j.denied = lost.packet, lost.denied
	case lost.lost != "":
		j.lost = fmt.Sprintf("%d of %d fragments arrive at %s, which delivers nothing before all have arrived: %s", arrived, len(s.parts), at, lost.lost)
	case arrived > 0:
		verb := "fragments reach"
		if arrived == 1 {
			verb = "fragment reaches"
		}
		j.lost = fmt.Sprintf("%d %s %s, which waits for the rest of the datagram", arrived, verb, at)
	}
}

// walkAll follows one fragment, and those that waited for it in a VPP, across the nodes: the end of each.
func walkAll(c *Cluster, j *journey, from place, p sim.Packet) (ends []journey) {
	type leg struct {
		at *node
		in string
		p  sim.Packet
	}
	todo := []leg{{from.node, from.inInterface(), p}}
	for steps := 0; len(todo) > 0; steps++ {
		l := todo[0]
		todo = todo[1:]
		if steps > maxCrossings*mostFragments {
			return append(ends, journey{packet: l.p, lost: "a routing loop"})
		}
		fate := l.at.sim.Send(l.in, l.p)
		denied := j.noteHops(l.at, fate.Hops)
		if len(fate.Out) == 0 {
			end := journey{packet: fate.Last, lost: denied, denied: denied != ""}
			if n := len(j.hops); denied == "" && n > 0 {
				end.lost = j.hops[n-1].String()
			}
			ends = append(ends, end)
		}
		for _, out := range fate.Out {
			end := journey{packet: out.Packet}
			if next, arrived := c.followPacket(&end, l.at, out); next != nil && !arrived {
				todo = append(todo, leg{next, out.Interface, out.Packet})
				continue
			}
			ends = append(ends, end)
		}
	}
	return ends
}

// collect gives a fragment to the kernel of its receiver. done: the datagram is whole, and p is its packet as received.
func collect(c *Cluster, end *journey) (got pieces, p sim.Packet, done bool) {
	p = end.packet
	k := datagram{end.end.String(), end.end.node.name, p.Src, p.Dst, p.Proto, p.Fragment.ID}
	now := end.end.node.sim.Now()
	was := c.arrived[k]
	if was.since.IsZero() || now.Sub(was.since) > fragmentLife {
		was = pieces{since: now}
	}
	was.changed = was.changed || p.Fragment.Later() && (p.SrcPort != 0 || p.DstPort != 0 || p.ICMPID != 0)
	if len(c.arrived) >= mostArrived {
		clear(c.arrived)
	}
	if was.Reassembly, p, done = was.Add(p); done {
		delete(c.arrived, k)
		return was, p, true
	}
	c.arrived[k] = was
	return was, p, false
}
