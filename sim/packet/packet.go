// Package packet turns the headers of one packet into a plain value, a line of text and IP bytes, and back.
//
// Invariant: a packet has only the fields that decide its fate (addresses, ports, flags, ICMP words and, for an ICMP error, the
// quoted packet). For every valid packet Parse(p.String()) is p, and Unmarshal(p.Marshal()) is p with the default TTL written out.
package packet

import (
	"fmt"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
)

// TCP header flags (RFC 9293).
const (
	FIN uint8 = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// ICMP types (RFC 792) that a forwarding node handles.
const (
	EchoReply        uint8 = 0
	Unreachable      uint8 = 3
	SourceQuench     uint8 = 4
	Redirect         uint8 = 5
	AlternateAddress uint8 = 6
	EchoRequest      uint8 = 8
	TimeExceeded     uint8 = 11
	ParameterProblem uint8 = 12
)

// ICMPv6 types (RFC 4443, RFC 4861).
const (
	Unreachable6      uint8 = 1
	TooBig6           uint8 = 2
	TimeExceeded6     uint8 = 3
	ParameterProblem6 uint8 = 4
	EchoRequest6      uint8 = 128
	EchoReply6        uint8 = 129
	RouterSolicit     uint8 = 133
	RouterAdvert      uint8 = 134
	NeighborSolicit   uint8 = 135
	NeighborAdvert    uint8 = 136
)

// Codes of ICMPv6 Unreachable.
const (
	CodeNoRoute6         uint8 = 0
	CodeAdminProhibited6 uint8 = 1
	CodePort6            uint8 = 4
)

// Chunk types of SCTP (RFC 9260).
const (
	Data             uint8 = 0
	Init             uint8 = 1
	InitAck          uint8 = 2
	Sack             uint8 = 3
	Heartbeat        uint8 = 4
	HeartbeatAck     uint8 = 5
	Abort            uint8 = 6
	Shutdown         uint8 = 7
	ShutdownAck      uint8 = 8
	Error            uint8 = 9
	CookieEcho       uint8 = 10
	CookieAck        uint8 = 11
	ShutdownComplete uint8 = 14
)

// Codes of ICMP Unreachable.
const (
	CodeNet             uint8 = 0
	CodeHost            uint8 = 1
	CodePort            uint8 = 3
	CodeTooBig          uint8 = 4
	CodeHostProhibited  uint8 = 10
	CodeAdminProhibited uint8 = 13
)

const (
	maxInner        = 1 // an error quotes a packet that is itself no error
	defaultHopLimit = 64
	ipv4HeaderLen   = 20
	ipv6HeaderLen   = 40
	icmpHeaderLen   = 8
	tcpHeaderLen    = 20
	udpHeaderLen    = 8
	sctpHeaderLen   = 12
	chunkLen        = 4
	initLen         = 20
	dontFragment    = 0x4000
)

// Packet is one packet, or a fragment of one. The zero value is not valid. Fields that do not belong to Proto are zero. Those of a later
// fragment are what its first bytes would be as a header: hosts, ACLs and NAT44 do not read them, cnat does.
type Packet struct {
	Src, Dst         netip.Addr
	Proto            model.Protocol
	SrcPort, DstPort uint16  // TCP, UDP, SCTP
	TCPFlags         uint8   // TCP: FIN | SYN | …
	Chunk            uint8   // SCTP: the type of the first chunk; an association begins with Init, which is never but the only one
	TTL              uint8   // 0 stands for 64, the usual TTL of hosts
	ICMPType         uint8   // ICMP, ICMPv6
	ICMPCode         uint8   // ICMP, ICMPv6
	ICMPID           uint16  // echo request and reply: the identifier
	Inner            *Packet // ICMP errors: the quoted packet; nil otherwise
	Fragment         Fragment
}

// NewTCP returns the first packet of a TCP connection.
func NewTCP(src, dst netip.AddrPort) Packet {
	return Packet{Src: src.Addr(), Dst: dst.Addr(), Proto: model.TCP, SrcPort: src.Port(), DstPort: dst.Port(), TCPFlags: SYN}
}

// NewUDP returns a datagram.
func NewUDP(src, dst netip.AddrPort) Packet {
	return Packet{Src: src.Addr(), Dst: dst.Addr(), Proto: model.UDP, SrcPort: src.Port(), DstPort: dst.Port()}
}

// NewSCTP returns the first packet of an association.
func NewSCTP(src, dst netip.AddrPort) Packet {
	return Packet{Src: src.Addr(), Dst: dst.Addr(), Proto: model.SCTP, SrcPort: src.Port(), DstPort: dst.Port(), Chunk: Init}
}

// Opening returns p as the first packet of a TCP connection or an SCTP association; other protocols are unchanged.
func (p Packet) Opening() Packet { return p.Phase(SYN, Init) }

// GoingOn returns p as a later packet with data; other protocols are unchanged.
func (p Packet) GoingOn() Packet { return p.Phase(ACK, Data) }

// Phase returns p with these flags if it is TCP, and with this chunk if it is SCTP; other protocols are unchanged.
func (p Packet) Phase(flags, chunk uint8) Packet {
	switch p.Proto {
	case model.TCP:
		p.TCPFlags = flags
	case model.SCTP:
		p.Chunk = chunk
	}
	return p
}

// NewPing returns an echo request.
func NewPing(src, dst netip.Addr, id uint16) Packet {
	p := Packet{Src: src, Dst: dst, Proto: model.ICMP, ICMPType: EchoRequest, ICMPID: id}
	return p.ForFamily()
}

// ForFamily returns the packet with ICMP changed to ICMPv6 if its addresses are IPv6, and echo types likewise. Callers then need not
// distinguish families.
func (p *Packet) ForFamily() Packet {
	c := p.Clone()
	if c.Proto != model.ICMP || !c.Dst.Is6() {
		return c
	}
	c.Proto = model.ICMPv6
	switch c.ICMPType {
	case EchoRequest:
		c.ICMPType = EchoRequest6
	case EchoReply:
		c.ICMPType = EchoReply6
	}
	return c
}

// IsICMP reports whether the packet is ICMP or ICMPv6.
func (p *Packet) IsICMP() bool { return p.Proto == model.ICMP || p.Proto == model.ICMPv6 }

// Life returns the TTL with its default applied.
func (p *Packet) Life() uint8 {
	if p.TTL == 0 {
		return defaultHopLimit
	}
	return p.TTL
}

// HasPorts reports whether the protocol has ports this package knows.
func (p *Packet) HasPorts() bool {
	return p.Proto == model.TCP || p.Proto == model.UDP || p.Proto == model.SCTP
}

// IsICMPError reports whether the packet is an ICMP error about another one.
func (p *Packet) IsICMPError() bool {
	switch p.Proto {
	case model.ICMP:
		return IsICMPErrorType(p.ICMPType)
	case model.ICMPv6:
		return Unreachable6 <= p.ICMPType && p.ICMPType <= ParameterProblem6
	}
	return false
}

// IsEcho reports whether the packet is an ICMP echo request or reply.
func (p *Packet) IsEcho() bool {
	return p.IsEchoRequest() || p.Proto == model.ICMP && p.ICMPType == EchoReply || p.Proto == model.ICMPv6 && p.ICMPType == EchoReply6
}

// IsEchoRequest reports whether the packet is a ping.
func (p *Packet) IsEchoRequest() bool {
	return p.Proto == model.ICMP && p.ICMPType == EchoRequest || p.Proto == model.ICMPv6 && p.ICMPType == EchoRequest6
}

// IsICMPErrorType reports whether an ICMP type quotes a packet: 3, 4, 5, 6, 11 and 12.
func IsICMPErrorType(t uint8) bool {
	switch t {
	case Unreachable, SourceQuench, Redirect, AlternateAddress, TimeExceeded, ParameterProblem:
		return true
	}
	return false
}

// Clone returns a copy that shares nothing with p.
func (p *Packet) Clone() Packet {
	c := *p
	if p.Inner != nil {
		inner := p.Inner.Clone()
		c.Inner = &inner
	}
	return c
}

// Equal compares the packets, inner ones by content.
func (p *Packet) Equal(o Packet) bool {
	a, b := *p, o
	a.Inner, b.Inner = nil, nil
	if a != b || (p.Inner == nil) != (o.Inner == nil) {
		return false
	}
	return p.Inner == nil || p.Inner.Equal(*o.Inner)
}

// Reply returns the receiver's answer in the plainest case: SYN by SYN+ACK, FIN by FIN+ACK, other TCP by ACK, chunks of SCTP by the
// one that acknowledges them, an echo request by an echo reply, a datagram by a datagram. A reset, an ABORT and an ICMP error have
// no answer; for them Reply returns a copy with the addresses exchanged.
func (p *Packet) Reply() Packet {
	r := p.Clone()
	r.Src, r.Dst = p.Dst, p.Src
	r.SrcPort, r.DstPort = p.DstPort, p.SrcPort
	r.TTL, r.Fragment = 0, Fragment{}
	switch {
	case p.Proto == model.TCP && p.TCPFlags&SYN != 0 && p.TCPFlags&ACK == 0:
		r.TCPFlags = SYN | ACK
	case p.Proto == model.TCP && p.TCPFlags&FIN != 0:
		r.TCPFlags = FIN | ACK
	case p.Proto == model.TCP && p.TCPFlags&RST == 0:
		r.TCPFlags = ACK
	case p.Proto == model.SCTP:
		r.Chunk = answerTo(p.Chunk)
	case p.Proto == model.ICMP && p.ICMPType == EchoRequest:
		r.ICMPType = EchoReply
	case p.Proto == model.ICMPv6 && p.ICMPType == EchoRequest6:
		r.ICMPType = EchoReply6
	}
	return r
}

// answerTo returns the chunk that answers a chunk; a chunk without an answer is its result.
func answerTo(chunk uint8) uint8 {
	switch chunk {
	case Init, Heartbeat, Shutdown, CookieEcho:
		return chunk + 1
	case InitAck:
		return CookieEcho
	case Data, CookieAck:
		return Sack
	case ShutdownAck:
		return ShutdownComplete
	}
	return chunk
}

// ICMPError returns the error of a router or host with address from about p, sent to p's source; the type is one of p's family.
func (p *Packet) ICMPError(from netip.Addr, icmpType, code uint8) Packet {
	inner := p.Clone()
	proto := model.ICMP
	if p.Src.Is6() {
		proto = model.ICMPv6
	}
	return Packet{Src: from, Dst: p.Src, Proto: proto, ICMPType: icmpType, ICMPCode: code, Inner: &inner}
}

// Validate returns why a packet cannot exist on a wire; nil if it can.
func (p *Packet) Validate() error { return p.validate(maxInner) }

func (p *Packet) validate(depth int) error {
	switch {
	case !p.Src.IsValid() || !p.Dst.IsValid():
		return fmt.Errorf("packet without source or destination")
	case p.Src.Is4() != p.Dst.Is4() || p.Src.Is4In6() || p.Dst.Is4In6() || p.Src.Zone() != "" || p.Dst.Zone() != "":
		return fmt.Errorf("packet with addresses %s and %s: must be one family, without zones", p.Src, p.Dst)
	case p.Proto == model.ICMPv6 && p.Src.Is4():
		return fmt.Errorf("ICMPv6 over IPv4")
	case p.Proto == 0:
		return fmt.Errorf("packet without protocol")
	case !p.HasPorts() && (p.SrcPort != 0 || p.DstPort != 0):
		return fmt.Errorf("%s packet with ports", p.Proto)
	case p.Proto != model.TCP && p.TCPFlags != 0:
		return fmt.Errorf("%s packet with TCP flags", p.Proto)
	case p.Proto != model.SCTP && p.Chunk != 0:
		return fmt.Errorf("%s packet with a chunk of SCTP", p.Proto)
	case !p.IsICMP() && (p.ICMPType != 0 || p.ICMPCode != 0):
		return fmt.Errorf("%s packet with an ICMP type", p.Proto)
	case !p.IsEcho() && p.ICMPID != 0:
		return fmt.Errorf("%s packet with an echo identifier", p.Proto)
	case p.IsICMPError() != (p.Inner != nil):
		return fmt.Errorf("an ICMP error quotes a packet, nothing else does")
	case p.Inner != nil && depth == 0:
		return fmt.Errorf("an ICMP error about an ICMP error")
	}
	if err := p.Fragment.validate(p); err != nil || p.Inner == nil {
		return err
	}
	return p.Inner.validate(depth - 1)
}
