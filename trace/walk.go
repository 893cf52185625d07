package trace

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/trace/hops"
)

// maxCrossings bounds how often a packet crosses between nodes: more means a routing loop.
const maxCrossings = 8

// String returns pod:<ns>/<name>, node:<name>, or the bare address.
func (p place) String() string {
	switch {
	case p.pod != nil:
		return "pod:" + p.pod.ID.String()
	case p.outside:
		return p.addr.String()
	}
	return "node:" + p.node.name
}

// sameParty reports whether both are the same party.
func (p place) sameParty(o place) bool {
	if p.outside || o.outside {
		return p.outside && o.outside && p.addr == o.addr
	}
	return p.pod == o.pod && p.node == o.node
}

// inInterface returns the VPP interface that receives the packets of the place.
func (p place) inInterface() string {
	switch {
	case p.pod != nil:
		return cni.PodInterface(p.pod.ID)
	case p.outside:
		return cni.Uplink
	}
	return cni.Host
}

// journey is the path of one packet over all nodes.
type journey struct {
	hops   []hops.Hop
	sent   netip.Addr // original destination
	end    place
	packet sim.Packet // as it arrived, or as last seen if it was lost
	lost   string     // why it did not arrive; "" if it arrived
	denied bool       // policies deny it
	quiet  bool       // do not record hops and reasons
	pieces int        // fragments that arrived without making a datagram whole
	whole  bool       // fragments made a datagram whole
	first  *journey   // of the fragment with the datagram's header; nil: none was sent
	// allowed are the policy rules that let it pass, each once, in the order of the hops.
	allowed []string
}

// travel sends a packet from a place, or its fragments, and follows it across the nodes.
func (c *Cluster) travel(from place, p sim.Packet, parts []sim.Packet) journey {
	j := journey{sent: p.Dst}
	deliver(c, &j, &sending{from: from, packet: p, parts: parts})
	return j
}

// walk is travel for a whole packet and a journey that has begun.
func (c *Cluster) walk(j *journey, from place, p sim.Packet) {
	at, in := from.node, from.inInterface()
	for range maxCrossings {
		fate := at.sim.Send(in, p)
		denied := j.noteHops(at, fate.Hops)
		if len(fate.Out) == 0 {
			j.packet, j.lost = fate.Last, at.name+": VPP sent no packet"
			if n := len(j.hops); denied != "" {
				j.lost, j.denied = denied, true
			} else if n > 0 {
				j.lost = j.hops[n-1].String() + c.podless(at, fate.Last.Dst)
			}
			return
		}
		out := fate.Out[0]
		j.packet, p = out.Packet, out.Packet
		next, arrived := c.followPacket(j, at, out)
		if arrived || next == nil {
			if n := len(j.hops); arrived && n > 0 {
				j.hops[n-1].DeliveredTo = j.end.String()
			}
			return
		}
		at, in = next, out.Interface
	}
	j.lost = fmt.Sprintf("crossed nodes %d times: a routing loop", maxCrossings)
}

// podless returns a note if a packet's destination is in a node's pod range and no pod has the address.
func (c *Cluster) podless(at *node, dst netip.Addr) string {
	if c.world.pods[dst] != nil || !slices.ContainsFunc(at.object.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(dst) }) {
		return ""
	}
	return fmt.Sprintf(" (no pod of %s has %s)", at.name, dst)
}

// noteHops records the hops through one node's VPP, with the reasons of the access lists' verdicts. It returns the last reason
// if that one denies.
func (j *journey) noteHops(at *node, list []sim.Hop) (denied string) {
	if j.quiet {
		if n := len(list); n > 0 {
			none := func(*sim.Hop) *flows.Decision { return nil }
			j.hops = append(j.hops[:0], hops.Of(at.name, list[n-1:], none)...)
		}
		return ""
	}
	j.hops = append(j.hops, hops.Of(at.name, list, func(h *sim.Hop) *flows.Decision {
		denied = ""
		reason, known := at.reason(h)
		if !known {
			return nil
		}
		if reason.Denied {
			denied = reason.Text
		} else if reason.Rule != "" && !slices.Contains(j.allowed, reason.Text) {
			j.allowed = append(j.allowed, reason.Text)
		}
		d := reason.Decision()
		return &d
	})...)
	return denied
}

// reason returns the reason of an access list's verdict, or of the classifier's verdict about SCTP associations. false: the
// list is foreign, or VPP did not evaluate it, because the packet belongs to an allowed flow.
func (n *node) reason(h *sim.Hop) (policy.Reason, bool) {
	switch m, s := h.ACL, h.Classify; {
	case m != nil && !m.Session:
		return n.agent.Explain(m.Interface, m.Output, m.Place, m.Rule)
	case s != nil && s.Packet.Proto == model.SCTP && s.Packet.Chunk == packet.Init:
		p := &s.Packet
		return n.agent.ExplainSCTP(s.Interface, s.Output, netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort))
	}
	return policy.Reason{}, false
}

// followPacket returns where a packet goes after an interface: it has arrived, or it enters another node by the interface's twin.
func (c *Cluster) followPacket(j *journey, at *node, out sim.Output) (next *node, arrived bool) {
	dst := out.Packet.Dst
	switch {
	case out.Local || out.Interface == cni.Host:
		j.end = place{node: at, addr: dst}
		return nil, true
	case out.Interface == cni.Overlay:
		if next = c.world.behindOverlay(dst, c.nodes); next == nil || next == at {
			j.lost = fmt.Sprintf("%s: overlay: no node has %s", at.name, dst)
			return nil, false
		}
		return next, false
	case out.Interface == cni.Uplink:
		if next = c.nodes[c.world.nodeOf(dst)]; next != nil && next != at {
			return next, false
		}
		j.end = place{node: at, outside: true, addr: dst}
		return nil, true
	}
	pod := c.world.podBehind(at.name, out.Interface)
	if pod == nil {
		j.lost = fmt.Sprintf("%s: interface %s belongs to no pod", at.name, out.Interface)
		return nil, false
	}
	j.end = place{pod: pod, node: at, addr: dst}
	return nil, true
}
