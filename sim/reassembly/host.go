package reassembly

import (
	"maps"
	"time"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// Host has the fragments of datagrams to VPP itself, of either family, until they are whole (ip4_full_reass.c, ip6_full_reass.c of VPP 24.06 to
// 26.06). A Table has one. It is not safe for concurrent use.
//
// BUGS. VPP shortens a fragment that overlaps another one in part; here both are dropped, and the rest of the datagram is.
type Host struct {
	limits [2]Limits // of IPv4 and IPv6; Most has no effect; Waiting is how many fragments may have come while the datagram is not whole
	by     map[key]collected
}

type collected struct {
	heard time.Time
	count int // of fragments, duplicates too
	parts packet.Reassembly
}

func newHost() Host {
	l := Limits{Timeout: 200 * time.Millisecond, Most: 1024, Waiting: 3}
	return Host{limits: [2]Limits{l, l}, by: map[key]collected{}}
}

func (h Host) clone() Host {
	h.by = maps.Clone(h.by)
	return h
}

func slot(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// Collect takes a fragment that came by an interface of a table at a time, and returns the datagram if it is whole now; why says why not.
func (h *Host) Collect(table uint32, p *packet.Packet, at time.Time) (whole packet.Packet, why string) {
	k, limits := key{table, p.Src, p.Dst, p.Proto, p.Fragment.ID}, h.limits[slot(p.Dst.Is6())]
	c := h.by[k]
	if at.After(c.heard.Add(limits.Timeout)) {
		c = collected{}
	}
	var done bool
	c.heard, c.count = at, c.count+1
	c.parts, whole, done = c.parts.Add(*p)
	switch {
	case done:
		delete(h.by, k)
		return whole, ""
	case c.count > limits.Waiting:
		delete(h.by, k)
		return packet.Packet{}, "too many fragments, and the datagram is not whole"
	}
	h.by[k] = c
	return packet.Packet{}, "waits for the rest of the datagram"
}
