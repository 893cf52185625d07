package change

import (
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/space"
)

// named are the protocols with ports or messages, in the order of texts.
var named = []struct {
	number uint16
	name   string
}{{space.TCP, "TCP"}, {space.UDP, "UDP"}, {space.SCTP, "SCTP"}, {space.ICMP, "ICMP"}, {space.ICMPv6, "ICMPv6"}} // read only

// Protocol is a protocol of a row, with its ports.
type Protocol struct {
	// Name is TCP, UDP, SCTP, ICMP, ICMPv6 or a number; "any": all protocols; "other": all that no other entry of the row names.
	Name string `json:"protocol"`
	// Ports are those of the destination, FromPorts those of the source. None: all, or the protocol has no ports.
	Ports     []space.Span `json:"ports,omitempty"`
	FromPorts *space.Span  `json:"fromPorts,omitempty"`
	// Types and Codes are those of messages of ICMP and ICMPv6. None: all.
	Types *space.Span  `json:"types,omitempty"`
	Codes []space.Span `json:"codes,omitempty"`
}

// portsOf names the protocols and ports of a set of one family without conditions on addresses, such as "TCP 80, 443; UDP", "all protocols".
func (c *comparison) portsOf(set space.Set) (string, []Protocol) {
	s := c.space
	family := s.Box(space.All4())
	if s.Intersect(set, family).Empty() {
		family = s.Box(space.All6())
	}
	fresh := s.Intersect(c.fresh, family)
	if set == fresh {
		return "all protocols", []Protocol{{Name: "any"}}
	}
	whole, has := c.protocols(fresh), c.protocols(set)
	var texts, others []string
	var list []Protocol
	for _, p := range named {
		switch {
		case has[p.number].Empty():
		case has[p.number] == whole[p.number]:
			texts, list = append(texts, p.name), append(list, Protocol{Name: p.name})
		default:
			more, ports := c.spans(has[p.number], p.name)
			texts, list = append(texts, more...), append(list, ports...)
		}
		whole[p.number], has[p.number] = space.Set{}, space.Set{}
	}
	for number := range has {
		if !has[number].Empty() {
			others = append(others, fmt.Sprint(number))
		}
	}
	switch {
	case len(others) == 0:
	case has == whole:
		texts, list = append(texts, "other protocols"), append(list, Protocol{Name: "other"})
	default:
		texts = append(texts, "protocols "+strings.Join(others, ", "))
		for _, number := range others {
			list = append(list, Protocol{Name: number})
		}
	}
	return strings.Join(texts, "; "), list
}

// protocols divides a set by protocol.
func (c *comparison) protocols(set space.Set) (out [256]space.Set) {
	for _, part := range space.ByProtocol(c.space, set) {
		for number := int(part.First); number <= int(part.Last); number++ {
			out[number] = part.Rest
		}
	}
	return out
}

// spans names the ports of a set without conditions on addresses and protocol, such as "TCP 80, 8000-8080", or the types of messages. Each
// range of source ports has a text.
func (c *comparison) spans(set space.Set, protocol string) (texts []string, list []Protocol) {
	message := strings.HasPrefix(protocol, "ICMP")
	for _, from := range space.BySourcePort(c.space, set) {
		var ports []string
		p := Protocol{Name: protocol}
		for _, to := range space.ByDestinationPort(c.space, from.Rest) {
			ports, p.Ports = append(ports, spanText(to.Span)), append(p.Ports, to.Span)
		}
		text := protocol + " " + strings.Join(ports, ", ")
		switch {
		case message:
			text = fmt.Sprintf("%s type %s code %s", protocol, spanText(from.Span), strings.Join(ports, ", "))
			p.Types, p.Codes, p.Ports = &from.Span, p.Ports, nil
		case from.Span != space.Full():
			text += " from port " + spanText(from.Span)
			p.FromPorts = &from.Span
		}
		texts, list = append(texts, strings.TrimSuffix(text, " code 0-255")), append(list, p)
	}
	return texts, list
}

func spanText(p space.Span) string {
	if p.First == p.Last {
		return fmt.Sprint(p.First)
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}
