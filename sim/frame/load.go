package frame

import (
	"encoding/binary"
	"errors"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// Load is the bytes of an IP packet and the header that they say.
type Load struct {
	Bytes  []byte
	Trail  []byte // what follows in the frame: VPP forwards that, too
	Header packet.Packet
	// Whole: the checksum of the transport header is right or missing. VPP asks only about packets to itself.
	Whole bool
}

// ErrHeader means that VPP's ip4-input or ip6-input drops the packet.
var ErrHeader = errors.New("no IP header, or a wrong one")

// Read takes the bytes of an IP packet, of which the caller must not change any; those behind its end are its trail.
func Read(b []byte) (*Load, error) {
	n, err := length(b)
	if err != nil {
		return nil, err
	}
	b, trail := b[:n:n], b[n:]
	p, whole, err := packet.Peek(b)
	if err != nil {
		return nil, err
	}
	return &Load{Bytes: b, Trail: trail, Header: p, Whole: whole}, nil
}

// length checks what VPP checks at its input.
func length(b []byte) (int, error) {
	if len(b) < ip4Len {
		return 0, ErrHeader
	}
	n, least := 0, ip4Len
	switch b[0] >> 4 {
	case 4:
		n, least = int(binary.BigEndian.Uint16(b[2:])), int(b[0]&15)*4
		if least < ip4Len || least > len(b) || wordSum(b[:least])%0xffff != 0 {
			return 0, ErrHeader
		}
	case 6:
		if len(b) < ip6Len {
			return 0, ErrHeader
		}
		n, least = ip6Len+int(binary.BigEndian.Uint16(b[4:])), ip6Len
	}
	if n < least || n > len(b) || b[0]>>4 != 4 && b[0]>>4 != 6 {
		return 0, ErrHeader
	}
	return n, nil
}

// DontFragment reports whether the packet must not be fragmented on its path.
func (l *Load) DontFragment() bool {
	return l.Bytes[0]>>4 == 6 || binary.BigEndian.Uint16(l.Bytes[6:])&dontFragment != 0
}

const (
	dontFragment  = 0x4000
	moreFragments = 0x2000
)

// parts returns the place of the transport header; false: the packet is a later fragment, which has none.
func parts(b []byte, p *packet.Packet) (at int, there bool) {
	at = ip6Len
	if p.Src.Is4() {
		at = int(b[0]&15) * 4
	} else if b[6] != uint8(p.Proto) {
		at += fragmentLen
	}
	return at, !p.Fragment.Later() && len(b) >= at
}

// As returns the bytes with the header p in place of the one that was read: what a node of VPP changed, with checksums corrected by the
// difference. p must be of the same family and protocol; an ICMP error quotes p.Inner in place of what it quoted.
func (l *Load) As(p packet.Packet) []byte {
	b := append([]byte(nil), l.Bytes...)
	was := &l.Header
	at, there := parts(b, was)
	addresses(b, was, &p)
	if there || mistaken(was, &p) {
		transport(b[at:], was, &p, l.Whole)
	}
	return b
}

// mistaken reports whether a node changed the first bytes of a later fragment, because it took them for a transport header: VPP's cnat does.
func mistaken(was, p *packet.Packet) bool {
	return was.Fragment.Later() && (was.SrcPort != p.SrcPort || was.DstPort != p.DstPort || was.ICMPID != p.ICMPID)
}

// addresses writes addresses and a TTL that has changed, and the checksum of the IPv4 header.
func addresses(b []byte, was, p *packet.Packet) {
	if p.Src.Is6() {
		if was.TTL != p.TTL {
			b[7] = p.Life()
		}
		src, dst := p.Src.As16(), p.Dst.As16()
		copy(b[8:], src[:])
		copy(b[24:], dst[:])
		return
	}
	if was.TTL != p.TTL {
		b[8] = p.Life()
	}
	src, dst := p.Src.As4(), p.Dst.As4()
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	headerSum(b)
}

// headerSum writes the checksum of an IPv4 header.
func headerSum(b []byte) {
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], fold(wordSum(b[:int(b[0]&15)*4])))
}

// transport writes ports and words of ICMP, and the checksum. b may be cut off, as in a quoted packet.
func transport(b []byte, was, p *packet.Packet, whole bool) {
	if len(b) < icmpLen {
		return
	}
	delta := uint32(0)
	put := func(at int, v uint16) {
		delta += uint32(^binary.BigEndian.Uint16(b[at:])) + uint32(v)
		binary.BigEndian.PutUint16(b[at:], v)
	}
	if p.HasPorts() {
		put(0, p.SrcPort)
		put(2, p.DstPort)
	}
	if p.IsICMP() {
		put(0, uint16(p.ICMPType)<<8|uint16(p.ICMPCode))
		if p.IsEcho() {
			put(4, p.ICMPID)
		}
		if was.Inner != nil && p.Inner != nil {
			delta += quoted(b[icmpLen:], was.Inner, p.Inner)
		}
	}
	if p.Proto != model.ICMP {
		delta += difference(was, p)
	}
	switch p.Proto {
	case model.TCP:
		correct(b, 16, delta, false)
	case model.UDP:
		correct(b, 6, delta, true)
	case model.ICMP, model.ICMPv6:
		correct(b, 2, delta, false)
	case model.SCTP:
		if whole && [2]uint16{was.SrcPort, was.DstPort} != [2]uint16{p.SrcPort, p.DstPort} && len(b) >= sctpLen {
			binary.LittleEndian.PutUint32(b[8:], castagnoli(b))
		}
	}
}

// quoted rewrites the packet that an ICMP error quotes, and returns the difference of its sum.
func quoted(b []byte, was, p *packet.Packet) uint32 {
	if len(b) < ip4Len || p.Src.Is6() && len(b) < ip6Len {
		return 0
	}
	before := fold(wordSum(b))
	at, there := parts(b, was)
	addresses(b, was, p)
	if there || mistaken(was, p) {
		transport(b[at:], was, p, false)
	}
	return uint32(before) + uint32(^fold(wordSum(b)))
}

// difference is that of the addresses in the pseudo header.
func difference(was, p *packet.Packet) uint32 {
	d := uint32(0)
	for _, a := range [][]byte{was.Src.AsSlice(), was.Dst.AsSlice()} {
		for i := 0; i < len(a); i += 2 {
			d += uint32(^binary.BigEndian.Uint16(a[i:]))
		}
	}
	return d + wordSum(p.Src.AsSlice()) + wordSum(p.Dst.AsSlice())
}

// correct updates the checksum at a place of b (RFC 1624). One of zero says, where that is possible, that there is none.
func correct(b []byte, at int, delta uint32, optional bool) {
	if len(b) < at+2 {
		return
	}
	old := binary.BigEndian.Uint16(b[at:])
	if optional && old == 0 {
		return
	}
	now := fold(uint32(^old) + delta)
	if optional && now == 0 {
		now = 0xffff
	}
	binary.BigEndian.PutUint16(b[at:], now)
}

// Spoil makes the checksum wrong that makes a host drop the packet: that of ICMPv6, or of the IPv4 header.
func Spoil(b []byte) {
	if b[0]>>4 == 6 {
		if len(b) >= ip6Len+icmpLen {
			b[ip6Len+3]++
		}
		return
	}
	b[11]++
}
