package adversary

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/trace"
)

// classify names what is particular about an arrival.
func (l *Law) classify(src netip.Addr, a *trace.Arrival) Class {
	there, back := flowsOf(a)
	switch {
	case a.Sent.Src != src:
		return Forged
	case a.Sent.Proto == model.SCTP:
		return SCTP
	case a.Sent.Src != a.Packet.Src && l.begun[back] == nil:
		return Hidden
	case l.begun[there] != nil || l.begun[back] != nil:
		return Revoked
	}
	return Open
}

// Judge says why an arrival breaks the law. The sender is the name it has in questions.
func (l *Law) Judge(from string, a *trace.Arrival) Breach {
	l.Packets++
	who := l.addrs[from]
	if who == nil {
		return Breach{}
	}
	l.Pieces += a.Pieces
	if a.Whole {
		l.Whole++
	}
	if a.Packet.Fragment.Later() { // without a header it opens nothing, and delivers nothing
		return Breach{}
	}
	recordHeader(l, a)
	l.Try(from, a)
	disturb(l, who, a)
	if a.At == "" || a.At == a.Sender || a.Packet.IsICMPError() {
		reachesItself(l, who, a)
		return Breach{}
	}
	l.Arrived++
	breach := evaluate(l, who, a)
	if first, is := firstHeader(l, a); is && !breach.None() {
		as := *a
		as.Sent = first
		if evaluate(l, who, &as).None() {
			l.excuse("a second first fragment, which nat44 gives the ports of the first one", 1)
			return Breach{}
		}
	}
	owner := impersonated(l, who, a)
	if owner != nil {
		l.Forged++
	}
	if !breach.None() {
		if why := forgersExcuse(l, who, owner, a); why != "" {
			l.excuse(why, 1)
			return Breach{}
		}
	}
	return breach
}

// evaluate says why an arrival breaks the law, if this party sent it.
func evaluate(l *Law, who *party, a *trace.Arrival) Breach {
	src, ok := who.of(a.Packet.Dst.Is4())
	if !ok {
		return Breach{Open, fmt.Sprintf("%s has no address of that family", who.name)}
	}
	allowed, why := l.allows(l.now, who, src, a)
	if allowed {
		return Breach{}
	}
	for i, c := range l.past {
		if ok, _ := l.allows(c, who, src, a); !ok {
			continue
		}
		if len(l.stopped) > 0 && (l.settled || i > 0) {
			l.excuse("an agent is away, and the policies are those of before", 1)
		}
		return Breach{}
	}
	if l.mixed(who, src, a) {
		l.excuse("between two nodes, of which one has changed already", 1)
		there, _ := flowsOf(a)
		l.begin(there, who, src, a)
		return Breach{}
	}
	if l.unlisted[who.name] || l.unlisted[a.At] {
		l.excuse("an interface that no agent has closed yet", 1)
		l.revive(l.now, who, src, a)
		return Breach{}
	}
	if l.unlisted[uplinkOf(who.node)] && strings.HasPrefix(why, "HostEndpoint ") {
		l.excuse("a host endpoint at an uplink without lists yet", 1)
		return Breach{}
	}
	if !strings.HasPrefix(a.At, "pod:") && slices.ContainsFunc(l.ranges, func(p netip.Prefix) bool { return p.Contains(a.Packet.Dst) }) {
		l.excuse("left the cluster for an address of pods", 1)
		return Breach{}
	}
	return Breach{l.classify(src, a), fmt.Sprintf("%s sent %s, and %s got %s: %s", who.name, &a.Sent, a.At, &a.Packet, why)}
}

// Try remembers a packet, whether it arrived or not, by where it was last seen.
func (l *Law) Try(from string, a *trace.Arrival) {
	who := l.addrs[from]
	if who == nil {
		return
	}
	l.crosses(who, a)
	if c := l.dials[dialled(a)]; c != nil && a.Packet.Dst == c.first.Dst && (a.At != "" || atOutput(a.Lost, c.node)) {
		// NAT may hide a client behind one port after another: the packet ends the session of the port that it has.
		if c = l.seen[c.seenAs(a)]; c != nil {
			shown := c.first
			shown.Src = a.Packet.Src
			passes := l.ever(func(p *policy.Cluster) bool {
				return c.client != c.server && p.JudgePods(&c.first).Allowed || a.At != "" && p.JudgeIngress(&shown).Allowed // the server's list drops what its ingress denies
			})
			// An echo reply answers another echo request, the other side's, and does not end the session of this one.
			c.spoke = passes || c.spoke && a.Sent.IsICMP() && !opening(&a.Sent)
		}
	}
	if src, ok := who.of(a.Packet.Dst.Is4()); ok && src == a.Sent.Src && a.Packet.Dst.IsValid() {
		f := flowOf(who.node, src, a.Packet.Dst, &a.Packet)
		f.SrcPort = a.Sent.SrcPort
		this := attempt{a.Sender, a.Packet.Dst, a.Sent.Proto, a.Sent.SrcPort, a.Packet.DstPort}
		l.sent[this] = l.sent[this].again(l.ever(func(p *policy.Cluster) bool { return p.JudgeEgress(&f).Allowed }), l.lives[who.node], a)
	}
	l.pair(who, a)
}

// pair remembers that a party sent SCTP under its address, or a sender that nat44 hid behind a node's address. Nodes send to their pods from the host
// link.
func (l *Law) pair(who *party, a *trace.Arrival) {
	src, _ := who.of(a.Sent.Dst.Is4())
	hostLink := a.Sent.Src == cni.HostLink && strings.HasPrefix(who.name, "node:")
	if a.Sent.Proto == model.SCTP && (a.Sent.Src == src || hostLink) {
		l.pairs[pair{a.Sender, a.Sent.Dst}] = l.changes
	}
	if at := l.addrs["node:"+a.AtNode]; a.Sent.Proto == model.SCTP && at != nil && a.Packet.Src != a.Sent.Src && slices.Contains(at.addrs, a.Packet.Src) {
		l.pairs[pair{at.name, a.Packet.Dst}] = l.changes
	}
}

// again is an attempt after one more packet.
func (t try) again(allowed bool, life int, a *trace.Arrival) try {
	t.allowed, t.life = allowed, life
	t.translated = t.translated || a.Packet.Dst != a.Sent.Dst
	return t
}

// mixed reports whether a packet passes while nodes change one after the other: its sender's egress and its receiver's ingress allow it, by policies
// of before or of now each. A client that a Service's session hides has the address that it shows.
func (l *Law) mixed(who *party, src netip.Addr, a *trace.Arrival) bool {
	try := l.sent[attempt{a.Sender, a.Packet.Dst, a.Sent.Proto, a.Sent.SrcPort, a.Packet.DstPort}]
	if len(l.past) == 0 || who.node == a.AtNode || a.Sent.Src != src || a.Packet.Src != src && !try.translated {
		return false
	}
	f := flowOf(who.node, src, a.Packet.Dst, &a.Packet)
	f.SrcPort = a.Sent.SrcPort
	shown := f
	shown.Src = a.Packet.Src
	return l.ever(func(c *policy.Cluster) bool { return c.JudgeEgress(&f).Allowed }) && l.ever(func(c *policy.Cluster) bool { return c.JudgeIngress(&shown).Allowed })
}

// crosses remembers an answer to a client that dialled a Service by another node, and that the client's interface drops: where it came in from
// the other node no policy denies it, so that a request (by its flags or its port) makes a session there (ADR 12).
func (l *Law) crosses(who *party, a *trace.Arrival) {
	c := l.seen[dialled(a)]
	if c == nil || !c.translated || l.addrs[c.client] == nil || l.addrs[c.client].node == who.node || !atOutput(a.Lost, l.addrs[c.client].node) {
		return
	}
	if opening(&a.Sent) || a.Packet.DstPort < clientPorts {
		l.revived[flow{a.Sender, c.client, a.Sent.Proto, a.Sent.SrcPort, c.first.SrcPort}] = true
	}
}

// atOutput reports whether a packet was dropped where it leaves the VPP of a node: the list at the receiver's interface saw it.
func atOutput(lost, node string) bool {
	hop, there := strings.CutPrefix(lost, node+": ")
	return there && (strings.HasPrefix(hop, "acl-plugin-out") || strings.HasPrefix(hop, "ip4-outacl") || strings.HasPrefix(hop, "ip6-outacl"))
}

// allows is the verdict of one set of policies about an arrival, excuses included; reason says why not.
func (l *Law) allows(c *policy.Cluster, who *party, src netip.Addr, a *trace.Arrival) (ok bool, reason string) {
	there, back := flowsOf(a)
	if conn, f := l.begun[back], flowOf(who.node, src, a.Packet.Dst, &a.Packet); conn != nil && !conn.free {
		conn.free = c.JudgeEgress(&f).Allowed
	}
	if ok, reason = l.opens(c, who, src, a); ok {
		l.Allowed++
		l.begin(there, who, src, a)
		delete(l.fronts, there)
		return true, ""
	}
	if l.answers(c, src, a, back) {
		l.Answers++
		if l.begun[back] == nil {
			l.excuse("answer without a request: "+a.Sent.Proto.String(), 1)
		}
		return true, ""
	}
	if l.masked(c, who, src, a) {
		l.begin(there, who, src, a)
		l.fronts[there] = netip.AddrPortFrom(a.Sent.Dst, a.Sent.DstPort)
		return true, ""
	}
	if why := cmp.Or(l.loose(c, who, src, a), l.behind(c, who, src, a), l.paired(a)); why != "" {
		l.excuse(why, 1)
		return true, ""
	}
	if why := cmp.Or(l.goesOn(c, a), l.invited(c, src, a)); why != "" {
		l.excuse(why, 1)
		l.revive(c, who, src, a)
		return true, ""
	}
	return false, reason
}

// reachesItself remembers a pod that reached itself under a node's address. Its list has a session with that address, by which it reaches the node
// itself when the node's VPP has lost the translation.
func reachesItself(l *Law, who *party, a *trace.Arrival) {
	if src, ok := who.of(a.Packet.Dst.Is4()); ok && a.At == a.Sender && src == a.Sent.Src && l.nodes[a.Packet.Src] {
		there, _ := flowsOf(a)
		l.begin(there, who, src, a)
	}
}

// begin remembers an opened connection.
func (l *Law) begin(f flow, who *party, src netip.Addr, a *trace.Arrival) {
	c := &conn{key: f, client: a.Sender, node: a.AtNode, first: flowOf(who.node, src, a.Packet.Dst, &a.Packet), spoke: true, translated: a.Sent.Dst != a.Packet.Dst}
	c.first.SrcPort = a.Sent.SrcPort
	c.sent, c.server, c.services, c.breaks = a.Sent, a.At, l.services, l.breaks
	c.kept = len(l.past) == 0 && !a.Packet.Fragment.Any() && src == a.Packet.Src && l.now.JudgePods(&c.first).Allowed
	c.kept = c.kept && !isDisturbed(l, c)
	c.free = l.begun[f] != nil && l.begun[f].free
	l.begun[f], l.dials[dialled(a)] = c, c
	l.seen[c.seenAs(a)] = c
}

// seenAs names a packet of a connection's client by what the server has to send to.
func (c *conn) seenAs(a *trace.Arrival) attempt {
	return attempt{c.server, a.Packet.Src, a.Sent.Proto, a.Packet.DstPort, a.Packet.SrcPort}
}

// shown is a packet's source address and port at its receiver.
func shown(a *trace.Arrival) netip.AddrPort {
	return netip.AddrPortFrom(a.Packet.Src, a.Packet.SrcPort)
}

// opens reports whether the sender of a packet may open a connection to its receiver.
func (l *Law) opens(c *policy.Cluster, who *party, src netip.Addr, a *trace.Arrival) (bool, string) {
	f := flowOf(who.node, src, a.Packet.Dst, &a.Packet)
	f.SrcPort = a.Sent.SrcPort
	v := c.JudgePods(&f)
	if !v.Allowed && !strings.HasPrefix(who.name, "pod:") && a.Packet.Src != src {
		v = c.JudgeHidden(&f, a.Packet.Src)
		if moved := f; !v.Allowed && c.JudgeEgress(&f).Allowed {
			moved.SrcPort = a.Packet.SrcPort
			if v = c.JudgeHidden(&moved, a.Packet.Src); v.Allowed {
				l.excuse("the port of a client that a frontend hides", 1)
			}
		}
	}
	if v.Allowed && strings.HasPrefix(who.name, "external:") && a.Sent.Dst == a.Packet.Dst { // a Service is evaluated as it is dialled
		v = c.JudgeUplinks(&f, false)
	}
	return v.Allowed, v.Why
}

// answers reports whether a packet belongs to a connection that its receiver may open.
func (l *Law) answers(c *policy.Cluster, src netip.Addr, a *trace.Arrival, of flow) bool {
	if opening(&a.Sent) {
		return false
	}
	back := a.Packet.Reply()
	f := flowOf(a.AtNode, a.Packet.Dst, src, &back)
	f.DstPort = a.Sent.SrcPort
	if a.Sent.IsICMP() {
		f.Type = 8
		if src.Is6() {
			f.Type = 128
		}
	}
	if c.JudgePods(&f).Allowed {
		return true
	}
	if front, dialled := l.fronts[of]; dialled {
		hidden, egress := f, f
		egress.Dst, egress.DstPort = front.Addr(), front.Port()
		if e := endsOf(&a.Sent, &a.Sent); !isForged(l, e.proto, e.a, e.b, a.Node) { // else the server's list knows the client by its own address
			hidden.Src = a.Sent.Dst
		}
		return c.JudgeIngress(&hidden).Allowed && (c.JudgeEgress(&f).Allowed || c.JudgeEgress(&egress).Allowed)
	}
	return !strings.HasPrefix(a.At, "pod:") && c.JudgeHidden(&f, a.Sent.Dst).Allowed
}
