package intent

import (
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
)

// Example is a packet and who decides about it.
type Example struct {
	Packet string `json:"packet"`
	// From and To are "NAMESPACE/POD", or an address of no pod.
	From string `json:"from"`
	To   string `json:"to"`
	// Egress says which object decides about the sender's egress, Ingress about the receiver's ingress; "": that end is no pod.
	Egress  string `json:"egress,omitempty"`
	Ingress string `json:"ingress,omitempty"`
	// Trace is the question about this packet for the trace command; "": it has no question for such packets, or an end has no address yet.
	Trace string `json:"trace,omitempty"`
}

// Describe describes a header between addresses that stand for classes. Sender and receiver are the members of these classes that the
// packet is between; nil: that end is no pod.
func (c *Cluster) Describe(h space.Header, sender, receiver *class.Member) *Example {
	packet := h
	e := &Example{From: h.Src.String(), To: h.Dst.String()}
	if sender != nil {
		e.From, e.Egress, packet.Src = sender.ID.String(), c.reason(sender, true, h), sender.Addrs[c.byAddr[h.Src].index]
	}
	if receiver != nil {
		e.To, e.Ingress, packet.Dst = receiver.ID.String(), c.reason(receiver, false, h), receiver.Addrs[c.byAddr[h.Dst].index]
	}
	e.Packet, e.Trace = packet.String(), question(packet, sender, receiver)
	return e
}

// Usual returns a header of a set. It prefers packets that are easy to send: a connection of TCP between addresses of IPv4, to a usual port.
func (c *Cluster) Usual(set space.Set) space.Header {
	s := c.Space
	narrow := func(preferred ...space.Set) { set = space.Narrow(s, set, preferred...) }
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
	h, _ := s.Witness(set)
	return h
}

// question is the line for trace.
func question(h space.Header, sender, receiver *class.Member) string {
	if class.IsPlaceholder(h.Src) || class.IsPlaceholder(h.Dst) {
		return ""
	}
	q := map[string]any{"to": netip.AddrPortFrom(h.Dst, h.DstPort).String()}
	switch {
	case h.Protocol == space.TCP && h.SrcPort > 0 && h.DstPort > 0:
		q["protocol"], q["sourcePort"] = "TCP", h.SrcPort
	case h.Protocol == space.UDP && h.SrcPort > 0 && h.DstPort > 0:
		q["protocol"], q["sourcePort"] = "UDP", h.SrcPort
	case h.Protocol == space.ICMP && h.SrcPort == 8 && h.DstPort == 0, h.Protocol == space.ICMPv6 && h.SrcPort == 128 && h.DstPort == 0:
		q["protocol"], q["to"] = "ICMP", h.Dst.String()
	default:
		return ""
	}
	switch {
	case sender != nil && !class.Scheduled(sender.Pod.Pod), receiver != nil && !class.Scheduled(receiver.Pod.Pod):
		return ""
	case sender != nil:
		q["from"] = "pod:" + sender.ID.String()
	case receiver != nil:
		q["from"] = "external:" + h.Src.String() + "@" + receiver.NodeName
	default:
		return ""
	}
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if enc.Encode(q) != nil {
		return ""
	}
	return strings.TrimSpace(text.String())
}
