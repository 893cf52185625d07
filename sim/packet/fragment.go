package packet

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/model"
)

// Fragment is the place of a packet in a fragmented datagram (RFC 791, RFC 8200). The zero value: the packet is no fragment.
type Fragment struct {
	ID     uint16 // the identification, the same in all fragments of a datagram
	Offset uint16 // of the first byte behind the IP header, a multiple of 8
	Length uint16 // bytes behind the IP header, at least 8; a multiple of 8 if More
	More   bool   // it is not the last one
}

const (
	fragmentHeader = 44 // next header of IPv6
	fragmentUnit   = 8
	moreFragments  = 0x2000
	offsetMask     = 0x1fff
	fragmentLength = 24 // of the fragments that Split makes: the first one holds every header
)

// Any reports whether the packet is a part of a datagram.
func (f Fragment) Any() bool { return f.Length != 0 }

// Later reports whether the packet is a fragment without the datagram's header.
func (f Fragment) Later() bool { return f.Offset != 0 }

// Split returns the datagram p in n fragments of 24 bytes, in order. It returns p alone if n is less than 2.
func Split(p *Packet, n int, id uint16) []Packet {
	whole := p.ForFamily()
	if n < 2 {
		return []Packet{whole}
	}
	out := make([]Packet, n)
	for i := range out {
		if out[i] = whole; i > 0 {
			out[i] = Packet{Src: whole.Src, Dst: whole.Dst, Proto: whole.Proto, TTL: whole.TTL}
		}
		out[i].Fragment = Fragment{ID: id, Offset: uint16(i * fragmentLength), Length: fragmentLength, More: i < n-1}
	}
	return out
}

// Pick returns some fragments of a datagram that is split: "first", "later" (all others), "reversed" (all, the last one first), "" (all, in
// order). False: another word.
func Pick(parts []Packet, only string) ([]Packet, bool) {
	switch only {
	case "":
	case "first":
		return parts[:1], true
	case "later":
		return parts[1:], true
	case "reversed":
		slices.Reverse(parts)
	default:
		return nil, false
	}
	return parts, true
}

// validate returns why a fragment cannot exist on a wire.
func (f *Fragment) validate(p *Packet) error {
	switch {
	case *f == Fragment{}:
		return nil
	case f.Length < fragmentUnit || f.Offset%fragmentUnit != 0 || f.More && f.Length%fragmentUnit != 0 || int(f.Offset)+int(f.Length) > 1<<16-1-ipv4HeaderLen:
		return fmt.Errorf("a fragment of %d bytes at %d", f.Length, f.Offset)
	case f.Offset == 0 && !f.More:
		return fmt.Errorf("a fragment that is the whole datagram")
	case f.Offset == 0 && int(f.Length) < firstLength(p.Proto):
		return fmt.Errorf("a first fragment that does not hold the header of %s", p.Proto)
	case f.Offset != 0 && (p.TCPFlags != 0 || p.Chunk != 0):
		return fmt.Errorf("a later fragment with flags of TCP or a chunk of SCTP")
	case p.IsICMPError():
		return fmt.Errorf("an ICMP error in fragments")
	}
	return nil
}

// firstLength is how many bytes of a datagram hold the fields of a Packet.
func firstLength(proto model.Protocol) int {
	switch proto {
	case model.TCP:
		return tcpHeaderLen
	case model.SCTP:
		return sctpHeaderLen + chunkLen
	}
	return fragmentUnit
}

// label is the end of Packet's String.
func (f *Fragment) label() string {
	if *f == (Fragment{}) {
		return ""
	}
	s := " fragment " + strconv.Itoa(int(f.ID)) + " offset " + strconv.Itoa(int(f.Offset)) + " length " + strconv.Itoa(int(f.Length))
	if f.More {
		s += " more"
	}
	return s
}

// cut returns the bytes of the fragment: those of a header, and zeros.
func (f *Fragment) cut(body []byte) []byte {
	return append(body, make([]byte, f.Length)...)[:f.Length]
}

// word is the 16 bits about fragments in a header; shift is that of the offset in units of eight bytes.
func (f *Fragment) word(more uint16, shift int) uint16 {
	w := f.Offset / fragmentUnit << shift
	if f.More {
		w |= more
	}
	return w
}

// header6 returns the fragment header of IPv6.
func (f *Fragment) header6(proto model.Protocol) []byte {
	b := make([]byte, fragmentUnit)
	b[0] = uint8(proto)
	binary.BigEndian.PutUint16(b[2:], f.word(1, 3))
	binary.BigEndian.PutUint32(b[4:], uint32(f.ID))
	return b
}

// Ports6 returns what a node that knows no extension header takes for protocol and ports of an IPv6 fragment: the fragment header.
func (f *Fragment) Ports6(of model.Protocol) (proto uint8, src, dst uint16) {
	h := f.header6(of)
	return fragmentHeader, binary.BigEndian.Uint16(h), binary.BigEndian.Uint16(h[2:])
}

// read6 reads it; fold: also one with an identification of 32 bits.
func (f *Fragment) read6(b []byte, fold bool) (model.Protocol, error) {
	if len(b) < 2*fragmentUnit && !(fold && len(b) > fragmentUnit) {
		return 0, fmt.Errorf("a fragment cut off")
	}
	w := binary.BigEndian.Uint16(b[2:])
	high := binary.BigEndian.Uint16(b[4:])
	if (high != 0 || w&6 != 0) && !fold {
		return 0, fmt.Errorf("a fragment with an identification of more than 16 bits, or with reserved bits")
	}
	*f = Fragment{ID: high ^ binary.BigEndian.Uint16(b[6:]), Offset: w &^ 7, Length: uint16(len(b) - fragmentUnit), More: w&1 != 0}
	return model.Protocol(b[0]), nil
}

// readData reads what VPP's cnat takes for a header: the first bytes of a later fragment.
func readData(p *Packet, b []byte) error {
	if len(b) < fragmentUnit {
		return fmt.Errorf("a fragment cut off")
	}
	switch {
	case p.HasPorts():
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	case p.IsICMP():
		p.ICMPType, p.ICMPCode = b[0], b[1]
		if p.IsEcho() {
			p.ICMPID = binary.BigEndian.Uint16(b[4:])
		}
	}
	return nil
}

// Reassembly collects the fragments of one datagram as the kernel of Linux does. The zero value has none. Values may be copied: Add
// shares nothing with its receiver.
type Reassembly struct {
	parts []Packet // by offset
	void  bool     // two fragments overlapped
}

// Add returns the reassembly with one more fragment, and the datagram if it is whole now: the packet of the fragment that has the
// header. A fragment whose bytes are known counts as a duplicate. Two that overlap void the datagram.
func (r Reassembly) Add(p Packet) (now Reassembly, whole Packet, done bool) {
	f := &p.Fragment
	for _, o := range r.parts {
		from, to := o.Fragment.Offset, o.Fragment.Offset+o.Fragment.Length
		switch {
		case from <= f.Offset && f.Offset+f.Length <= to:
			return r, Packet{}, false
		case f.Offset < to && from < f.Offset+f.Length:
			return Reassembly{void: true}, Packet{}, false
		}
	}
	if r.void {
		return r, Packet{}, false
	}
	at, _ := slices.BinarySearchFunc(r.parts, f.Offset, func(o Packet, offset uint16) int { return int(o.Fragment.Offset) - int(offset) })
	now = Reassembly{parts: slices.Insert(slices.Clone(r.parts), at, p)}
	next := uint16(0)
	for _, o := range now.parts {
		if o.Fragment.Offset != next {
			return now, Packet{}, false
		}
		next += o.Fragment.Length
	}
	if now.parts[len(now.parts)-1].Fragment.More {
		return now, Packet{}, false
	}
	whole = now.parts[0]
	whole.Fragment = Fragment{}
	return Reassembly{}, whole, true
}
