package probe

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	macLen    = 6
	headerLen = 2*macLen + 2
	arpLen    = 28
	ip6Len    = 40
	bodyLen   = 8 + 16 + 8 // of a solicitation: its header, the target, the sender's MAC address
	solicit   = 135        // types of ICMPv6 (RFC 4861)
	advert    = 136
)

// arpKinds are the first bytes of a message about IPv4 over Ethernet (RFC 826).
const arpKinds = "\x00\x01\x08\x00\x06\x04"

// question asks for the MAC address of a neighbour, by ARP or by neighbour discovery.
type question struct {
	mac      [macLen]byte
	from, to netip.Addr
}

func (q *question) protocol() uint16 {
	if q.to.Is6() {
		return unix.ETH_P_IPV6
	}
	return unix.ETH_P_ARP
}

// frame returns the question as a frame.
func (q *question) frame() []byte {
	if q.to.Is6() {
		return q.solicitation()
	}
	b := slices.Concat([]byte("\xff\xff\xff\xff\xff\xff"), q.mac[:], []byte{0x08, 0x06}, []byte(arpKinds), []byte{0, 1}, q.mac[:], q.from.AsSlice(), make([]byte, macLen), q.to.AsSlice())
	return b
}

// solicitation asks the group of the neighbour's address.
func (q *question) solicitation() []byte {
	target := q.to.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], target[13:])
	body := slices.Concat([]byte{solicit, 0, 0, 0, 0, 0, 0, 0}, target[:], []byte{1, 1}, q.mac[:])
	ip := slices.Concat([]byte{0x60, 0, 0, 0, 0, bodyLen, unix.IPPROTO_ICMPV6, 255}, q.from.AsSlice(), group[:])
	binary.BigEndian.PutUint16(body[2:], checksum(slices.Concat(ip[8:], []byte{0, 0, 0, bodyLen, 0, 0, 0, unix.IPPROTO_ICMPV6}, body)))
	return slices.Concat([]byte{0x33, 0x33}, group[12:], q.mac[:], []byte{0x86, 0xdd}, ip, body)
}

// checksum is the Internet checksum of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// answeredBy reports that a frame is the neighbour's answer.
func (q *question) answeredBy(b []byte) bool {
	if len(b) < headerLen || [macLen]byte(b) != q.mac || binary.BigEndian.Uint16(b[2*macLen:]) != q.protocol() {
		return false
	}
	b = b[headerLen:]
	if q.to.Is4() {
		return len(b) >= arpLen && string(b[:len(arpKinds)]) == arpKinds && b[7] == 2 && netip.AddrFrom4([4]byte(b[14:])) == q.to
	}
	return len(b) >= ip6Len+24 && b[6] == unix.IPPROTO_ICMPV6 && b[ip6Len] == advert && netip.AddrFrom16([16]byte(b[ip6Len+8:])) == q.to
}
