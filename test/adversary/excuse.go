package adversary

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/trace"
)

// goesOn says why a revoked connection may go on as ADR 12 has it; "": it may not.
func (l *Law) goesOn(c *policy.Cluster, a *trace.Arrival) string {
	there, back := flowsOf(a)
	if conn := l.seen[dialled(a)]; conn != nil && l.begun[back] == nil && strings.HasPrefix(a.At, "node:") {
		back = conn.key // the client was hidden behind that node's address, and its VPP has lost the translation
	}
	if l.revived[back] {
		return "revoked, and a packet of the other side made a session anew: " + back.proto.String()
	}
	if why := cmp.Or(l.serverGoesOn(a, back), l.clientGoesOn(c, a, there)); why != "" {
		return why
	}
	for _, f := range []flow{there, back} {
		if conn := l.begun[f]; conn != nil && conn.client != conn.server && f.sport >= clientPorts {
			first := conn.first
			first.Src, first.Dst, first.SrcPort, first.DstPort = first.Dst, first.Src, first.DstPort, first.SrcPort
			if c.JudgeEgress(&first).Allowed {
				return "revoked, to a port of 32768 or more: " + f.proto.String()
			}
		}
	}
	return ""
}

// clientGoesOn says why the client of a revoked connection reaches the server; "": it may not. Its port is below 32768, its ingress allows the server,
// and the server sent something: at the client's interface that is a request, and makes a session (ADR 12).
func (l *Law) clientGoesOn(c *policy.Cluster, a *trace.Arrival, there flow) string {
	conn := l.begun[there]
	if conn == nil || conn.translated || there.cport >= clientPorts || there.proto != model.TCP && there.proto != model.UDP {
		return ""
	}
	back := conn.first
	back.Src, back.Dst, back.SrcPort, back.DstPort = back.Dst, back.Src, back.DstPort, back.SrcPort
	if _, answered := l.sent[attempt{a.At, conn.first.Src, there.proto, there.sport, there.cport}]; answered && c.JudgeIngress(&conn.first).Allowed && c.JudgeIngress(&back).Allowed {
		return "revoked, from a port below 32768: " + there.proto.String()
	}
	return ""
}

// revive remembers a packet that passed by a session where policies deny it, if the receiver's ingress allows it, or the receiver had dialled a
// Service by another node, and it is a request there, by its flags or the receiver's port: where it arrives it makes another session (ADR 12).
func (l *Law) revive(c *policy.Cluster, who *party, src netip.Addr, a *trace.Arrival) {
	f := flowOf(who.node, src, a.Packet.Dst, &a.Packet)
	f.SrcPort = a.Sent.SrcPort
	request := opening(&a.Sent) || !a.Sent.HasPorts() || a.Packet.DstPort < clientPorts
	far := who.node != a.AtNode && a.Packet.Src != a.Sent.Src // where it came in from the other node, no policy denies a Service's answers
	if there, _ := flowsOf(a); request && (far || c.JudgeIngress(&f).Allowed) {
		l.revived[there] = true
	}
}

// serverGoesOn says why the server of a revoked connection reaches its client; "": it may not, or is none.
func (l *Law) serverGoesOn(a *trace.Arrival, back flow) string {
	conn := l.seen[dialled(a)] // by the address and port that the server sees: those of the session at its interface
	if conn == nil {
		conn = l.begun[back]
	}
	switch {
	case conn == nil:
		return ""
	case conn.client != a.At && strings.HasPrefix(a.At, "pod:"):
		return "revoked, and another pod has the client's address"
	case conn.spoke:
		return "revoked, and nothing of the client came since: " + back.proto.String()
	case conn.translated && conn.client != conn.server && (back.proto == model.UDP || back.proto == model.TCP && !opening(&a.Sent)):
		return "revoked, by a Service: " + back.proto.String()
	}
	return ""
}

// clientPorts is the first port that the agent takes for a client's.
const clientPorts = 32768

// masked reports whether a pod dialled a node port or a load balancer's address, and may do that: its own egress allows the endpoint or, as
// another node may translate, the frontend, and the endpoint's ingress allows the address that the client has there.
func (l *Law) masked(c *policy.Cluster, who *party, src netip.Addr, a *trace.Arrival) bool {
	front := netip.AddrPortFrom(a.Sent.Dst, a.Sent.DstPort)
	if !l.masks[front] || a.Sent.Src != src {
		return false
	}
	f := flowOf(who.node, src, a.Packet.Dst, &a.Packet)
	f.SrcPort = a.Sent.SrcPort
	dialled := flowOf(who.node, src, front.Addr(), &a.Sent)
	hidden := f
	hidden.Src = a.Packet.Src
	switch {
	case !c.JudgeIngress(&hidden).Allowed || !c.JudgeEgress(&f).Allowed && !c.JudgeEgress(&dialled).Allowed:
		return false
	case !c.JudgeEgress(&f).Allowed:
		l.excuse("egress to a frontend, not to its endpoint", 1)
	default:
		l.excuse("a client that a frontend hides", 1)
	}
	return true
}

// invited says how the receiver of a packet had sent one the other way, from and to the same ports, which its own egress allowed: it still
// does, or the receiver sent nothing on that connection since; "": it had not.
func (l *Law) invited(c *policy.Cluster, src netip.Addr, a *trace.Arrival) string {
	try, sent := l.sent[attempt{a.At, src, a.Sent.Proto, a.Packet.DstPort, a.Sent.SrcPort}]
	back := a.Packet.Reply()
	f := flowOf(a.AtNode, a.Packet.Dst, src, &back)
	f.DstPort = a.Sent.SrcPort
	switch {
	case !sent:
		return ""
	case c.JudgeEgress(&f).Allowed:
		return "the receiver's own attempt: " + a.Sent.Proto.String()
	case try.allowed && !opening(&a.Sent):
		return "the receiver's own attempt, revoked, and the receiver is silent since: " + a.Sent.Proto.String()
	case try.allowed && a.Sent.Proto == model.TCP && try.life == l.lives[a.AtNode]: // what the receiver answers ends the session
		return "the receiver's own attempt, revoked, and the other side sends a SYN"
	}
	return ""
}

// behind says why a packet may come under the address of another node than the receiver's, which the receiver's ingress allows, as its
// sender's egress allows the receiver or what was dialled; "": it may not. nat44 gives that address to who dials an endpoint from a port from
// which a Service led there (ADR 13).
func (l *Law) behind(c *policy.Cluster, who *party, src netip.Addr, a *trace.Arrival) string {
	at := l.addrs["node:"+a.AtNode]
	if a.Sent.Src != src || a.Packet.Src == src || at == nil || slices.Contains(at.addrs, a.Packet.Src) || !l.nodes[a.Packet.Src] {
		return ""
	}
	f, dialled := flowOf(who.node, src, a.Packet.Dst, &a.Packet), flowOf(who.node, src, a.Sent.Dst, &a.Sent)
	f.SrcPort = a.Sent.SrcPort
	hidden := f
	hidden.Src = a.Packet.Src
	try, sent := l.sent[attempt{a.Sender, a.Packet.Dst, a.Sent.Proto, a.Sent.SrcPort, a.Packet.DstPort}]
	if sent && try.translated && c.JudgeIngress(&hidden).Allowed && (c.JudgeEgress(&f).Allowed || c.JudgeEgress(&dialled).Allowed) {
		return "a client with another node's address, since a Service led there: " + a.Sent.Proto.String()
	}
	return ""
}

// paired says that an association begins by a session of the receiver's own, which is a pair of addresses: the receiver sent SCTP to the
// address that the packet comes from, policies changed, and it sent no more. "": not so.
func (l *Law) paired(a *trace.Arrival) string {
	when, sent := l.pairs[pair{a.At, a.Packet.Src}]
	switch {
	case a.Sent.Proto != model.SCTP:
		return ""
	case sent && when < l.changes:
		return "SCTP by a session of the receiver's, who is silent since"
	case sent && strings.HasPrefix(a.At, "node:") && !strings.HasPrefix(a.Sender, "pod:") && !strings.HasPrefix(a.Sender, "node:"):
		return "SCTP from outside by a session of the node's"
	}
	return ""
}

// loose says why a packet of SCTP that begins no association passes (ADR 11): there is none between these ports, so that it does nothing, or
// its addresses are such that others may begin, at whatever ports, or an interface has a filter, which lets through whatever begins
// nothing; "": it may not. Of the true sender's address and the one that its
// packet has there, one is enough.
func (l *Law) loose(c *policy.Cluster, who *party, src netip.Addr, a *trace.Arrival) string {
	there, back := flowsOf(a)
	switch {
	case a.Sent.Proto != model.SCTP || opening(&a.Sent):
		return ""
	case l.begun[there] == nil && l.begun[back] == nil:
		return "SCTP of no association, which begins none"
	}
	answer := a.Packet.Reply()
	for _, from := range []netip.Addr{src, a.Packet.Src} {
		for _, port := range l.ports {
			f, g := flowOf(who.node, from, a.Packet.Dst, &a.Packet), flowOf(a.AtNode, a.Packet.Dst, from, &answer)
			f.DstPort, g.DstPort = port, port
			if c.JudgePods(&f).Allowed || c.JudgePods(&g).Allowed {
				return "SCTP of a revoked association, between addresses that may have others"
			}
		}
	}
	if l.filters {
		return "SCTP of a revoked association, where policies ask for ports of SCTP"
	}
	return ""
}
