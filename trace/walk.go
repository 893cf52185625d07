package trace

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// maxCrossings bounds how often a packet crosses between nodes: more is a routing loop.
const maxCrossings = 8

// place is where a packet starts or ends: a pod, a node's own network stack, or an address outside the cluster.
type place struct {
	pod     *model.Pod // not nil: that pod
	node    *node      // the pod's node, the node itself, or, outside, the node at whose uplink it is
	outside bool
	addr    netip.Addr // the address it speaks from, or was reached at
}

// String is pod:<ns>/<name>, node:<name>, or the bare address.
func (p place) String() string {
	switch {
	case p.pod != nil:
		return "pod:" + p.pod.ID.String()
	case p.outside:
		return p.addr.String()
	}
	return "node:" + p.node.name
}

// same reports whether both are the same party.
func (p place) same(o place) bool {
	if p.outside || o.outside {
		return p.outside && o.outside && p.addr == o.addr
	}
	return p.pod == o.pod && p.node == o.node
}

// door is the interface through which what the place sends enters VPP.
func (p place) door() string {
	switch {
	case p.pod != nil:
		return cni.PodInterface(p.pod.ID)
	case p.outside:
		return cni.Uplink
	}
	return cni.Host
}

// journey is the way of one packet, over as many nodes as it takes.
type journey struct {
	hops   []string
	sent   netip.Addr // the destination it was sent to
	end    place
	packet sim.Packet // as it arrived; as it was last seen if lost
	lost   string     // why it got nowhere; "" if it arrived
	denied bool       // that is because policies deny it
	quiet  bool       // nobody asks for hops and reasons
	// allowed are the policy rules that let it pass, each once, in the order it met them.
	allowed []string
}

// travel sends a packet from a place and follows it across the nodes.
func (c *Cluster) travel(from place, p sim.Packet) journey {
	j := journey{sent: p.Dst}
	c.walk(&j, from, p)
	return j
}

// walk is travel with a journey that has begun.
func (c *Cluster) walk(j *journey, from place, p sim.Packet) {
	at, in := from.node, from.door()
	for range maxCrossings {
		fate := at.sim.Send(in, p)
		denied := j.note(at, fate.Hops)
		if len(fate.Out) == 0 {
			j.packet, j.lost = fate.Last, at.name+": nothing left VPP"
			if n := len(j.hops); denied != "" {
				j.lost, j.denied = denied, true
			} else if n > 0 {
				j.lost = j.hops[n-1] + c.podless(at, fate.Last.Dst)
			}
			return
		}
		out := fate.Out[0]
		j.packet, p = out.Packet, out.Packet
		next, arrived := c.follow(j, at, out)
		if arrived || next == nil {
			return
		}
		at, in = next, out.Interface
	}
	j.lost = fmt.Sprintf("crossed nodes %d times: a routing loop", maxCrossings)
}

// podless says that a packet is for an address of a node's own pods that no pod has.
func (c *Cluster) podless(at *node, dst netip.Addr) string {
	if c.world.pods[dst] != nil || !slices.ContainsFunc(at.object.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(dst) }) {
		return ""
	}
	return fmt.Sprintf(" (no pod of %s has %s)", at.name, dst)
}

// note writes down the hops through one node's VPP, with the reasons of those where access lists judge, and returns the
// reason of the last one if it denies.
func (j *journey) note(at *node, hops []sim.Hop) (denied string) {
	if j.quiet {
		if n := len(hops); n > 0 {
			j.hops = append(j.hops[:0], at.name+": "+hops[n-1].String())
		}
		return ""
	}
	for _, h := range hops {
		line := at.name + ": " + h.Node + ": " + h.Text
		denied = ""
		if reason, known := at.reason(&h); known {
			line += " (" + reason.Text + ")"
			if reason.Denied {
				denied = reason.Text
			} else if reason.Rule != "" && !slices.Contains(j.allowed, reason.Text) {
				j.allowed = append(j.allowed, reason.Text)
			}
		}
		j.hops = append(j.hops, line)
	}
	return denied
}

// reason is why an access list lets a packet pass, or what decides about associations of SCTP beside it, or why not; false: it is not one of
// the agent's, or it is not asked, because the packet belongs to a flow that it let pass before.
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

// follow decides where what left an interface goes: it has arrived, or it enters another node by its twin interface.
func (c *Cluster) follow(j *journey, at *node, out sim.Output) (next *node, arrived bool) {
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
