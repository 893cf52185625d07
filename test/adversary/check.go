package adversary

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/served"
	"github.com/contiv-agent/contiv-agent/trace"
)

// Check compares the answer to a question about a new connection with the law: each chosen endpoint gets the packet exactly if the
// policies allow it. If the answer names no endpoint, the policies must deny at least one.
func (l *Law) Check(s *trace.Step, answer *trace.Answer, endpoints []netip.AddrPort) Breach {
	who := l.addrs[s.From]
	l.Checks++
	allowed := 0
	for _, e := range endpoints {
		src, _ := who.of(e.Addr().Is4())
		if src == e.Addr() { // there it has the address of hidden clients, and their rights
			continue
		}
		f := newConnection(who.node, src, e, s)
		v := l.now.JudgePods(&f)
		if v.Allowed {
			allowed++
		}
		for _, o := range answer.Outcomes {
			if (o.Address == e.String() || o.Address == e.Addr().String()) && (o.Verdict == trace.Delivered) != v.Allowed {
				class := Open
				if v.Allowed {
					class = Lost
				}
				return Breach{class, fmt.Sprintf("%s -> %s %s: %s %s (%s); %s", s.From, s.To, s.Protocol, e, o.Verdict, o.Reason, v.Why)}
			}
		}
	}
	if len(answer.Outcomes) == 0 && allowed > 0 && allowed == len(endpoints) {
		return Breach{Lost, fmt.Sprintf("%s -> %s %s: %s (%s); all %d endpoints are allowed", s.From, s.To, s.Protocol, answer.Verdict, answer.Reason, allowed)}
	}
	return Breach{}
}

// Kept are connections between pods that policies allowed ever since they began, and that must go on: by the packet that opened each and who
// got it, in a fixed order. A Service's must not have outlived its NAT session: no VPP restarted and no time passed, and no Service changed.
// Ports are those of which the law of sessions knows who is the client (ADR 12).
func (l *Law) Kept() []trace.Arrival {
	var out []trace.Arrival
	for _, c := range l.begun {
		if l.kept(c) {
			out = append(out, trace.Arrival{Sender: c.client, At: c.server, Sent: c.sent})
		}
	}
	slices.SortFunc(out, func(a, b trace.Arrival) int {
		return cmp.Or(strings.Compare(a.Sender, b.Sender), strings.Compare(a.At, b.At), strings.Compare(a.Sent.String(), b.Sent.String()))
	})
	return out
}

func (l *Law) kept(c *conn) bool {
	switch {
	case !c.kept || !strings.HasPrefix(c.client, "pod:") || !strings.HasPrefix(c.server, "pod:") || c.client == c.server:
		return false
	case c.translated && (c.services != l.services || c.breaks != l.breaks):
		return false
	case c.sent.IsICMP():
		return c.sent.IsEchoRequest()
	case c.sent.Proto == model.TCP:
		return opening(&c.sent) && c.first.SrcPort >= clientPorts && c.first.DstPort < clientPorts
	}
	return c.sent.Proto == model.UDP && c.first.SrcPort >= clientPorts && c.first.DstPort < clientPorts
}

// Arrives says why one more packet of an established connection breaks the law: the law keeps that connection, and its receiver does not
// get the packet. back: the server sent it, to the client's address as the server sees it.
func (l *Law) Arrives(a *trace.Arrival, back bool) Breach {
	c := l.dials[dialled(a)]
	if back {
		c = l.seen[dialled(a)]
	}
	if c == nil || !l.kept(c) {
		return Breach{}
	}
	l.Established++
	want := c.server
	if back {
		want = c.client
	}
	if at := l.addrs[c.client]; back && a.At == "" && at != nil && atOutput(a.Lost, at.node) {
		if serves, err := served.Port(l.objects, c.first.Src, c.first.Dst, c.first.Proto, c.first.SrcPort); serves && err == nil {
			l.excuse("an answer to a port that its receiver serves: "+a.Sent.Proto.String(), 1)
			return Breach{}
		}
	}
	if back && a.At == "" && overwritten(l, c, a) {
		l.excuse("an answer whose session ended with an older one between the same ends: "+a.Sent.Proto.String(), 1)
		return Breach{}
	}
	if a.At != want {
		return Breach{Lost, fmt.Sprintf("%s sent %s of an established connection that is allowed, and %s did not get it: %s %s", a.Sender, &a.Sent, want, a.At, a.Lost)}
	}
	return Breach{}
}

// overwritten reports whether an answer was lost at its sender's interface, whose egress once allowed answers by itself and does not now. Such an
// answer made a session there, a later packet of the client another one with the same key for answers, and the end of the older session removed it.
func overwritten(l *Law, c *conn, a *trace.Arrival) bool {
	f := flowOf(a.Node, a.Sent.Src, c.first.Src, &a.Sent)
	return c.free && strings.HasPrefix(a.Lost, a.Node+": acl-plugin-in") && !l.now.JudgeEgress(&f).Allowed
}

// newConnection is the first packet of a step as it arrives at an endpoint.
func newConnection(node string, src netip.Addr, e netip.AddrPort, s *trace.Step) policy.Flow {
	f := policy.Flow{Node: node, Src: src, Dst: e.Addr(), SrcPort: s.SourcePort, DstPort: e.Port(), Proto: policy.TCP}
	switch s.Protocol {
	case "UDP":
		f.Proto = policy.UDP
	case "ICMP":
		f.Proto, f.Type, f.SrcPort, f.DstPort = policy.ICMP, 8, 0, 0
		if src.Is6() {
			f.Proto, f.Type = policy.ICMPv6, 128
		}
	}
	return f
}
