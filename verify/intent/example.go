package intent

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/example"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
	"github.com/contiv-agent/contiv-agent/verify/question"
)

// Example is a packet and who decides about it.
type Example struct {
	Packet string          `json:"packet"`
	Header *example.Header `json:"header,omitempty"`
	// From and To are "NAMESPACE/POD", or an address of no pod.
	From string `json:"from"`
	To   string `json:"to"`
	// Egress says which object decides about the sender's egress, Ingress about the receiver's ingress; "": that end is no pod.
	Egress  string `json:"egress,omitempty"`
	Ingress string `json:"ingress,omitempty"`
	// Trace is the question about this packet for the trace command; "": it has no question for such packets, or an end has no address yet.
	Trace string `json:"trace,omitempty"`
	// Decisions has Egress and Ingress as fields.
	Decisions []example.Decision `json:"decisions,omitempty"`
}

// Describe describes a header between addresses that stand for classes. Sender and receiver are the members of these classes that the
// packet is between; nil: that end is no pod.
func (c *Cluster) Describe(h space.Header, sender, receiver *class.Member) *Example {
	packet := h
	e := &Example{From: h.Src.String(), To: h.Dst.String()}
	if sender != nil {
		e.From, e.Egress, packet.Src = sender.ID.String(), c.reasonFor(e, sender, true, h), sender.Addrs[c.byAddr[h.Src].index]
	}
	if receiver != nil {
		e.To, e.Ingress, packet.Dst = receiver.ID.String(), c.reasonFor(e, receiver, false, h), receiver.Addrs[c.byAddr[h.Dst].index]
	}
	e.Packet, e.Header, e.Trace = packet.String(), example.HeaderOf(packet), askTrace(packet, sender, receiver)
	return e
}

// meeting is the headers that the sets of one of the lists, at most three each, have in common. Nothing calculates this set: between thousands of
// classes it may be much larger than the sets.
type meeting [][]space.Set

// header returns a header of the meeting that another set has, too.
func (m meeting) header(s *space.Space, in space.Set) (h space.Header, found bool) {
	for _, sets := range m {
		if h, found = space.Common(s, append(sets[:len(sets):len(sets)], in)...); found {
			break
		}
	}
	return h, found
}

// Usual returns a header of a set. It prefers packets that are easy to send: a connection of TCP between addresses of IPv4, to a usual port.
func (c *Cluster) Usual(set space.Set) space.Header { return c.usual(meeting{{set}}) }

func (c *Cluster) usual(m meeting) space.Header {
	s, want := c.Space, c.Space.All()
	narrow := func(preferred ...space.Set) {
		for _, p := range preferred {
			both := s.Intersect(want, p)
			if _, some := m.header(s, both); some {
				want = both
				return
			}
		}
	}
	outside := []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("2001:db8::7/128")}
	port := func(first, last uint16) space.Set {
		return space.Boxes(s, func(b *space.Box) { b.DstPorts = space.Span{First: first, Last: last} })
	}
	narrow(s.Box(space.All4()))
	narrow(space.OfProtocol(s, space.TCP), space.OfProtocol(s, space.UDP), space.Echo(s), space.OfProtocol(s, space.ICMP), space.OfProtocol(s, space.ICMPv6), space.OfProtocol(s, space.SCTP))
	narrow(s.Complement(c.Outside(false)), s.Sources(outside...))
	narrow(s.Complement(c.Outside(true)), s.Destinations(outside...))
	ported := s.Union(space.OfProtocol(s, space.TCP), space.OfProtocol(s, space.UDP), space.OfProtocol(s, space.SCTP))
	narrow(s.Intersect(ported, space.Boxes(s, func(b *space.Box) { b.SrcPorts = space.One(40000) })))
	narrow(s.Intersect(ported, port(80, 80)), s.Intersect(ported, port(443, 443)), s.Intersect(ported, port(1, 65535)))
	h, _ := m.header(s, want)
	return h
}

// askTrace is the line for trace.
func askTrace(h space.Header, sender, receiver *class.Member) string {
	switch {
	case class.IsPlaceholder(h.Src) || class.IsPlaceholder(h.Dst):
	case sender != nil && !class.Scheduled(sender.Pod.Pod), receiver != nil && !class.Scheduled(receiver.Pod.Pod):
	case sender != nil:
		return question.Line(question.Pod(sender.ID.String()), h, false)
	case receiver != nil:
		return question.Line(question.External(h.Src, receiver.NodeName), h, false)
	}
	return ""
}
