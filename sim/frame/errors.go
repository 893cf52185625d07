package frame

import (
	"encoding/binary"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// The most that VPP sends of an ICMP error (icmp4.c, icmp6.c).
const most4, most6 = 576, 1280

// Error returns the ICMP error e that quotes the packet: as much of it as VPP does. mtu is that of the link it did not fit in; 0: the error
// is another one. ended: VPP quotes it with a TTL of zero, because ip4-rewrite or ip6-rewrite decremented that.
func (l *Load) Error(e packet.Packet, mtu int, ended bool) []byte {
	cause := l.Bytes
	if e.Inner != nil {
		cause = l.As(*e.Inner)
	}
	if ended {
		cause = lifeless(cause)
	}
	head, most := ip4Len, most4
	if e.Src.Is6() {
		head, most = ip6Len, most6
	}
	b := make([]byte, head+icmpLen, head+icmpLen+len(cause))
	b = append(b, cause...)
	b = b[:min(len(b), most)]
	body := b[head:]
	body[0], body[1] = e.ICMPType, e.ICMPCode
	binary.BigEndian.PutUint32(body[4:], uint32(mtu))
	start := uint32(0)
	if e.Src.Is6() {
		b[0], b[6] = 0x60, uint8(model.ICMPv6)
		binary.BigEndian.PutUint16(b[4:], uint16(len(body)))
		addresses(b, &packet.Packet{}, &e)
		start = pseudo(b, len(body))
	} else {
		b[0], b[9] = 0x45, uint8(model.ICMP)
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		addresses(b, &packet.Packet{}, &e)
	}
	binary.BigEndian.PutUint16(body[2:], fold(start+wordSum(body)))
	return b
}

// lifeless returns a packet with a TTL of zero.
func lifeless(b []byte) []byte {
	b = slices.Clone(b)
	if b[0]>>4 == 6 {
		b[7] = 0
		return b
	}
	b[8] = 0
	headerSum(b)
	return b
}

const tcpLen = 20

// Reset returns the reset r of a TCP segment without a connection (RFC 9293, 3.5.2).
func (l *Load) Reset(r packet.Packet) []byte {
	b, err := r.Marshal()
	at, there := parts(l.Bytes, &l.Header)
	if err != nil || !there || len(l.Bytes) < at+tcpLen {
		return nil
	}
	segment := l.Bytes[at:]
	head := len(b) - tcpLen
	body := b[head:]
	if flags := segment[13]; flags&packet.ACK != 0 {
		body[13] = packet.RST
		copy(body[4:8], segment[8:12])
	} else {
		length := uint32(len(segment)) - uint32(segment[12]>>4)*4 + uint32(flags&packet.FIN) + uint32(flags&packet.SYN)>>1
		binary.BigEndian.PutUint32(body[8:], binary.BigEndian.Uint32(segment[4:])+length)
	}
	body[16], body[17] = 0, 0
	binary.BigEndian.PutUint16(body[16:], fold(pseudo(b, tcpLen)+wordSum(body)))
	return b
}
