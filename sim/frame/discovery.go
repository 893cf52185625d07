package frame

import (
	"encoding/binary"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

const (
	ip4Len, ip6Len = 20, 40
	icmpLen        = 8
	onLink         = 255 // the hop limit of discovery
	discoveryLen   = ip6Len + icmpLen + 16
	optionLen      = 8
	sourceLink     = 1
	targetLink     = 2
	solicitedFlag  = 0x40
	overrideFlag   = 0x20
)

// Discovery is a neighbour solicitation or advertisement (RFC 4861).
type Discovery struct {
	Kind     uint8 // packet.NeighborSolicit or NeighborAdvert
	Src, Dst netip.Addr
	Target   netip.Addr
	Link     MAC // of the sender or the target, if HasLink
	HasLink  bool
}

// ParseDiscovery reads an IPv6 packet; false: it is no valid message of discovery.
func ParseDiscovery(b []byte) (Discovery, bool) {
	if len(b) < discoveryLen || b[0]>>4 != 6 || b[6] != uint8(model.ICMPv6) || b[7] != onLink {
		return Discovery{}, false
	}
	end := ip6Len + int(binary.BigEndian.Uint16(b[4:]))
	if end > len(b) || end < discoveryLen || b[ip6Len] != packet.NeighborSolicit && b[ip6Len] != packet.NeighborAdvert {
		return Discovery{}, false
	}
	d := Discovery{
		Kind: b[ip6Len], Src: netip.AddrFrom16([16]byte(b[8:])), Dst: netip.AddrFrom16([16]byte(b[24:])),
		Target: netip.AddrFrom16([16]byte(b[ip6Len+icmpLen:])),
	}
	want := byte(sourceLink)
	if d.Kind == packet.NeighborAdvert {
		want = targetLink
	}
	for rest := b[discoveryLen:end]; len(rest) >= optionLen && rest[1] > 0; {
		if rest[0] == want {
			d.Link, d.HasLink = MAC(rest[2:]), true
		}
		rest = rest[min(len(rest), int(rest[1])*optionLen):]
	}
	return d, true
}

// Bytes returns the message as an IPv6 packet.
func (d *Discovery) Bytes() []byte {
	b := make([]byte, discoveryLen+optionLen)
	b[0], b[6], b[7] = 0x60, uint8(model.ICMPv6), onLink
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ip6Len))
	src, dst, target := d.Src.As16(), d.Dst.As16(), d.Target.As16()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
	body := b[ip6Len:]
	body[0] = d.Kind
	copy(body[icmpLen:], target[:])
	option := body[icmpLen+16:]
	option[0], option[1] = sourceLink, 1
	if d.Kind == packet.NeighborAdvert {
		body[4], option[0] = overrideFlag, targetLink
		if !d.Dst.IsMulticast() {
			body[4] |= solicitedFlag
		}
	}
	copy(option[2:], d.Link[:])
	binary.BigEndian.PutUint16(body[2:], fold(pseudo(b, len(body))+wordSum(body)))
	return b
}

// Group returns the solicited-node multicast address of an address.
func Group(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// GroupMAC returns the Ethernet address of a multicast address.
func GroupMAC(a netip.Addr) MAC {
	if a.Is4() {
		b := a.As4()
		return MAC{1, 0, 0x5e, b[1] & 0x7f, b[2], b[3]}
	}
	b := a.As16()
	return MAC{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// LinkLocal returns the link-local address that VPP derives from an Ethernet address.
func LinkLocal(m MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}
