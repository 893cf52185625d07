package frame

import (
	"encoding/binary"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
)

// MAC is an Ethernet address.
type MAC = [6]byte

// Ethertypes.
const (
	TypeIPv4 uint16 = 0x0800
	TypeARP  uint16 = 0x0806
	TypeVLAN uint16 = 0x8100
	TypeIPv6 uint16 = 0x86dd
)

const (
	headerLen = 14
	vlanLen   = 4
)

// Broadcast is the address of everybody.
func Broadcast() MAC { return MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }

// IsGroup reports whether an address is that of a group.
func IsGroup(m MAC) bool { return m[0]&1 != 0 }

// Ethernet is a frame; VLAN is 0 without a tag.
type Ethernet struct {
	Dst, Src MAC
	VLAN     uint16
	Type     uint16
	Payload  []byte
}

// ParseEthernet reads a frame; the payload shares its bytes. A tag with the number 0 is a priority tag, and no VLAN.
func ParseEthernet(b []byte) (Ethernet, bool) {
	if len(b) < headerLen {
		return Ethernet{}, false
	}
	e := Ethernet{Dst: MAC(b), Src: MAC(b[6:]), Type: binary.BigEndian.Uint16(b[12:]), Payload: b[headerLen:]}
	if e.Type == TypeVLAN {
		if len(e.Payload) < vlanLen {
			return Ethernet{}, false
		}
		e.VLAN, e.Type = binary.BigEndian.Uint16(e.Payload)&0xfff, binary.BigEndian.Uint16(e.Payload[2:])
		e.Payload = e.Payload[vlanLen:]
	}
	return e, true
}

// Bytes returns the frame.
func (e *Ethernet) Bytes() []byte {
	b := make([]byte, 0, headerLen+vlanLen+len(e.Payload))
	b = append(append(b, e.Dst[:]...), e.Src[:]...)
	if e.VLAN != 0 {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, TypeVLAN), e.VLAN)
	}
	return append(binary.BigEndian.AppendUint16(b, e.Type), e.Payload...)
}

// IPType returns the ethertype of an IP packet.
func IPType(b []byte) uint16 {
	if len(b) > 0 && b[0]>>4 == 6 {
		return TypeIPv6
	}
	return TypeIPv4
}

// ARP operations.
const (
	Request uint16 = 1
	Answer  uint16 = 2
)

const arpLen = 28

// ARP is a message about IPv4 over Ethernet.
type ARP struct {
	Op                   uint16
	SenderMAC, TargetMAC MAC
	Sender, Target       netip.Addr
}

// arpKinds are the first bytes of a message about IPv4 over Ethernet.
const arpKinds = "\x00\x01\x08\x00\x06\x04"

// ParseARP reads a message.
func ParseARP(b []byte) (ARP, bool) {
	if len(b) < arpLen || string(b[:6]) != arpKinds {
		return ARP{}, false
	}
	return ARP{
		Op: binary.BigEndian.Uint16(b[6:]), SenderMAC: MAC(b[8:]), Sender: netip.AddrFrom4([4]byte(b[14:])), TargetMAC: MAC(b[18:]),
		Target: netip.AddrFrom4([4]byte(b[24:])),
	}, true
}

// Bytes returns the message.
func (a *ARP) Bytes() []byte {
	b := binary.BigEndian.AppendUint16([]byte(arpKinds), a.Op)
	sender, target := a.Sender.As4(), a.Target.As4()
	return append(append(append(append(b, a.SenderMAC[:]...), sender[:]...), a.TargetMAC[:]...), target[:]...)
}

// Tag returns a frame with the tag of a VLAN.
func Tag(b []byte, tag uint16) []byte {
	const addresses = 12
	if len(b) < headerLen {
		return b
	}
	out := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(append([]byte(nil), b[:addresses]...), TypeVLAN), tag)
	return append(out, b[addresses:]...)
}

// Finish writes the checksum of the transport header that the sender of a frame left to its device.
func Finish(b []byte) {
	e, ok := ParseEthernet(b)
	if !ok || e.Type != TypeIPv4 && e.Type != TypeIPv6 {
		return
	}
	l, err := Read(e.Payload)
	if err != nil || l.Whole {
		return
	}
	at, there := parts(l.Bytes, &l.Header)
	if !there || l.Header.Fragment.Any() {
		return
	}
	body, place := l.Bytes[at:], 0
	switch l.Header.Proto {
	case model.TCP:
		place = 16
	case model.UDP:
		place = 6
	default:
		return
	}
	body[place], body[place+1] = 0, 0
	s := fold(pseudo(l.Bytes, len(body)) + wordSum(body))
	if s == 0 && l.Header.Proto == model.UDP {
		s = 0xffff
	}
	binary.BigEndian.PutUint16(body[place:], s)
}

// DerivedMAC returns a stable locally administered address.
func DerivedMAC(name string) MAC {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return MAC{0x02, 0xfe, byte(h >> 24), byte(h >> 16), byte(h >> 8), byte(h)}
}
