package space

import (
	"fmt"
	"net/netip"
)

// Header is the part of a packet that access lists compare.
type Header struct {
	Src, Dst netip.Addr
	Protocol uint8
	// SrcPort and DstPort are the ports of TCP, UDP and SCTP, and the type and code of ICMP and ICMPv6. Other protocols have 0.
	SrcPort, DstPort uint16
	Flags            uint8 // of TCP, as in the packet; 0 for other protocols
}

// Numbers of protocols that have ports or types.
const (
	ICMP   = 1
	TCP    = 6
	UDP    = 17
	ICMPv6 = 58
	SCTP   = 132
)

// Flags of TCP.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// String is "tcp 10.1.1.2:40000 -> 10.1.1.3:80 SYN", "icmp 10.1.1.2 -> 10.1.1.3 type 8 code 0" or "protocol 47 10.1.1.2 -> 10.1.1.3".
func (h Header) String() string {
	switch h.Protocol {
	case TCP, UDP, SCTP:
		name := map[uint8]string{TCP: "tcp", UDP: "udp", SCTP: "sctp"}[h.Protocol]
		text := fmt.Sprintf("%s %s -> %s", name, netip.AddrPortFrom(h.Src, h.SrcPort), netip.AddrPortFrom(h.Dst, h.DstPort))
		if h.Protocol == TCP {
			for _, name := range h.FlagNames() {
				text += " " + name
			}
		}
		return text
	case ICMP, ICMPv6:
		name := map[uint8]string{ICMP: "icmp", ICMPv6: "icmpv6"}[h.Protocol]
		return fmt.Sprintf("%s %s -> %s type %d code %d", name, h.Src, h.Dst, h.SrcPort, h.DstPort)
	}
	return fmt.Sprintf("protocol %d %s -> %s", h.Protocol, h.Src, h.Dst)
}

// FlagNames returns the names of the flags of TCP that are set.
func (h Header) FlagNames() (names []string) {
	for i, name := range []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"} {
		if h.Flags>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// Span is the values from First to Last, both included. It is empty if Last is less than First.
type Span struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// Full is every port, type or code.
func Full() Span { return Span{0, 65535} }

// One is one value.
func One(v uint16) Span { return Span{v, v} }

// Box is the headers of one address family whose fields are all within ranges.
type Box struct {
	Src, Dst           netip.Prefix // of one family; host bits have no meaning
	Protocols          Span         // 0 to 255
	SrcPorts, DstPorts Span
	// FlagMask and FlagBits select by TCP flags: flags&FlagMask == FlagBits. Zero: any.
	FlagMask, FlagBits uint8
}

// All4 is every header of IPv4.
func All4() Box { return allOf(netip.IPv4Unspecified()) }

// All6 is every header of IPv6.
func All6() Box { return allOf(netip.IPv6Unspecified()) }

func allOf(zero netip.Addr) Box {
	all := netip.PrefixFrom(zero, 0)
	return Box{Src: all, Dst: all, Protocols: Span{0, 255}, SrcPorts: Full(), DstPorts: Full()}
}

// Contains reports whether the box has the header.
func (b *Box) Contains(h Header) bool {
	in := func(s Span, v uint16) bool { return s.First <= v && v <= s.Last }
	return b.Src.Contains(h.Src) && b.Dst.Contains(h.Dst) && in(b.Protocols, uint16(h.Protocol)) && in(b.SrcPorts, h.SrcPort) &&
		in(b.DstPorts, h.DstPort) && h.Flags&b.FlagMask == b.FlagBits
}
