package packet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
)

// Marshal returns the packet as IP bytes with correct checksums, without options and payload; an ICMP error quotes its packet whole.
// An unknown protocol gets eight zero bytes, because real packets are not shorter. It fails for packets that are not valid.
func (p *Packet) Marshal() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	if p.Fragment.Any() {
		body = p.Fragment.cut(body)
	}
	if p.Src.Is6() {
		return p.marshal6(body), nil
	}
	b := make([]byte, ipv4HeaderLen, ipv4HeaderLen+len(body))
	b[0] = 0x45
	binary.BigEndian.PutUint16(b[2:], uint16(ipv4HeaderLen+len(body)))
	binary.BigEndian.PutUint16(b[6:], dontFragment)
	if p.Fragment.Any() {
		binary.BigEndian.PutUint16(b[4:], p.Fragment.ID)
		binary.BigEndian.PutUint16(b[6:], p.Fragment.word(moreFragments, 0))
	}
	b[8], b[9] = p.Life(), uint8(p.Proto)
	src, dst := p.Src.As4(), p.Dst.As4()
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	binary.BigEndian.PutUint16(b[10:], checksum(0, b))
	return append(b, body...), nil
}

func (p *Packet) marshal6(body []byte) []byte {
	next := uint8(p.Proto)
	if p.Fragment.Any() {
		next, body = fragmentHeader, append(p.Fragment.header6(p.Proto), body...)
	}
	b := make([]byte, ipv6HeaderLen, ipv6HeaderLen+len(body))
	b[0] = 0x60
	binary.BigEndian.PutUint16(b[4:], uint16(len(body)))
	b[6], b[7] = next, p.Life()
	src, dst := p.Src.As16(), p.Dst.As16()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
	return append(b, body...)
}

func (p *Packet) body() ([]byte, error) {
	switch p.Proto {
	case model.TCP:
		b := make([]byte, tcpHeaderLen)
		putPorts(b, p)
		b[12], b[13] = tcpHeaderLen/4<<4, p.TCPFlags
		binary.BigEndian.PutUint16(b[14:], 65535)
		binary.BigEndian.PutUint16(b[16:], checksum(p.pseudo(len(b)), b))
		return b, nil
	case model.UDP:
		b := make([]byte, udpHeaderLen)
		putPorts(b, p)
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
		sum := checksum(p.pseudo(len(b)), b)
		if sum == 0 {
			sum = 0xffff // 0 on the wire means: not computed
		}
		binary.BigEndian.PutUint16(b[6:], sum)
		return b, nil
	case model.SCTP:
		b := make([]byte, sctpHeaderLen, sctpHeaderLen+initLen)
		putPorts(b, p)
		b = p.chunk(b)
		binary.LittleEndian.PutUint32(b[8:], castagnoli(b))
		return b, nil
	case model.ICMP, model.ICMPv6:
		b := make([]byte, icmpHeaderLen)
		b[0], b[1] = p.ICMPType, p.ICMPCode
		binary.BigEndian.PutUint16(b[4:], p.ICMPID)
		if p.Proto == model.ICMPv6 && (p.ICMPType == NeighborSolicit || p.ICMPType == NeighborAdvert) {
			b = p.discovery(b)
		}
		if p.Inner != nil {
			inner, err := p.Inner.Marshal()
			if err != nil {
				return nil, err
			}
			b = append(b, inner...)
		}
		binary.BigEndian.PutUint16(b[2:], checksum(p.icmpPseudo(len(b)), b))
		return b, nil
	}
	return make([]byte, 8), nil
}

// chunk adds the first chunk: INIT and INIT ACK with their fixed part, others without a value.
func (p *Packet) chunk(b []byte) []byte {
	c := make([]byte, chunkLen, initLen)
	if p.Chunk == Init || p.Chunk == InitAck {
		// tag 1, a window of 64 KiB, one stream each way, TSN 1
		c = append(c, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1)
	}
	c[0] = p.Chunk
	binary.BigEndian.PutUint16(c[2:], uint16(len(c)))
	return append(b, c...)
}

// discovery adds the target and a link-layer address (RFC 4861). The target of a solicitation is its destination unless that is a
// group; the target of an advertisement is its sender.
func (p *Packet) discovery(b []byte) []byte {
	const sourceAddress, targetAddress, eightBytes = 1, 2, 1
	target, option := p.Dst.As16(), byte(sourceAddress)
	if p.ICMPType == NeighborAdvert {
		target, option = p.Src.As16(), targetAddress
	}
	return append(append(b, target[:]...), option, eightBytes, 2, 0xca, 0, 0, 0, 0)
}

func putPorts(b []byte, p *Packet) {
	binary.BigEndian.PutUint16(b, p.SrcPort)
	binary.BigEndian.PutUint16(b[2:], p.DstPort)
}

// Unmarshal is the inverse of Marshal. It skips options and payload. Errors are: wrong checksums (except of fragments, and of truncated
// headers inside an ICMP error) and truncated headers.
func Unmarshal(b []byte) (Packet, error) {
	p, err := (&reader{}).unmarshal(b, maxInner)
	if err != nil {
		return Packet{}, fmt.Errorf("packet bytes: %w", err)
	}
	return p, nil
}

// Peek is Unmarshal for bytes of real hosts: sound is false where the checksum of the transport header is wrong, and the short last fragment of a datagram counts as one of eight bytes. The identification of an IPv6 fragment is folded to 16 bits.
func Peek(b []byte) (p Packet, sound bool, err error) {
	r := reader{lenient: true, sound: true}
	if p, err = r.unmarshal(b, maxInner); err != nil {
		return Packet{}, false, fmt.Errorf("packet bytes: %w", err)
	}
	return p, r.sound, nil
}

// reader reads packets. A lenient one notes in sound what is wrong with checksums, where another one fails.
type reader struct{ lenient, sound bool }

func (r *reader) unmarshal(b []byte, depth int) (Packet, error) {
	if len(b) >= ipv6HeaderLen && b[0]>>4 == 6 {
		return r.unmarshal6(b, depth)
	}
	if len(b) < ipv4HeaderLen || b[0]>>4 != 4 {
		return Packet{}, fmt.Errorf("no IP header")
	}
	hlen, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	quoted := depth < maxInner
	switch {
	case hlen < ipv4HeaderLen || len(b) < hlen || total < hlen:
		return Packet{}, fmt.Errorf("bad header length")
	case len(b) < total && !quoted:
		return Packet{}, fmt.Errorf("%d bytes of %d", len(b), total)
	case checksum(0, b[:hlen]) != 0 && !(r.lenient && quoted):
		return Packet{}, fmt.Errorf("wrong IPv4 header checksum")
	}
	p := Packet{
		Src: netip.AddrFrom4([4]byte(b[12:16])), Dst: netip.AddrFrom4([4]byte(b[16:20])),
		Proto: model.Protocol(b[9]), TTL: b[8],
	}
	if w := binary.BigEndian.Uint16(b[6:]); w&(moreFragments|offsetMask) != 0 {
		p.Fragment = Fragment{
			ID: binary.BigEndian.Uint16(b[4:]), Offset: w & offsetMask * fragmentUnit, Length: uint16(total - hlen), More: w&moreFragments != 0,
		}
	}
	whole := len(b) >= total
	if whole {
		b = b[:total]
	}
	if p.TTL == 0 && r.lenient && quoted {
		p.TTL = 1 // it ended where it is quoted
	}
	if p.Proto == 0 || p.TTL == 0 {
		return Packet{}, fmt.Errorf("protocol or TTL zero")
	}
	if err := r.readBody(&p, b[hlen:], whole, depth); err != nil {
		return Packet{}, err
	}
	return p, p.validate(depth)
}

// unmarshal6 reads an IPv6 packet without extension headers other than the fragment header.
func (r *reader) unmarshal6(b []byte, depth int) (Packet, error) {
	total := ipv6HeaderLen + int(binary.BigEndian.Uint16(b[4:]))
	quoted := depth < maxInner
	if len(b) < total && !quoted {
		return Packet{}, fmt.Errorf("%d bytes of %d", len(b), total)
	}
	p := Packet{
		Src: netip.AddrFrom16([16]byte(b[8:24])), Dst: netip.AddrFrom16([16]byte(b[24:40])), Proto: model.Protocol(b[6]), TTL: b[7],
	}
	whole := len(b) >= total
	if whole {
		b = b[:total]
	}
	body := b[ipv6HeaderLen:]
	if p.Proto == fragmentHeader {
		var err error
		if p.Proto, err = p.Fragment.read6(body, r.lenient); err != nil {
			return Packet{}, err
		}
		body = body[fragmentUnit:]
	}
	if p.TTL == 0 && r.lenient && quoted {
		p.TTL = 1
	}
	if p.Proto == 0 || p.TTL == 0 || extension(p.Proto) {
		return Packet{}, fmt.Errorf("an extension header, or a hop limit of zero")
	}
	if err := r.readBody(&p, body, whole, depth); err != nil {
		return Packet{}, err
	}
	return p, p.validate(depth)
}

// extension reports whether an IPv6 next header is not a transport header (RFC 8200).
func extension(proto model.Protocol) bool {
	switch proto {
	case 43, 44, 51, 59, 60, 135:
		return true
	}
	return false
}

// readBody reads the transport header; whole is false for a truncated quoted packet.
func (r *reader) readBody(p *Packet, b []byte, whole bool, depth int) error {
	if r.lenient && p.Fragment.Any() && !p.Fragment.More && len(b) < fragmentUnit {
		b = append(append([]byte(nil), b...), make([]byte, fragmentUnit)...)[:fragmentUnit]
		p.Fragment.Length = fragmentUnit
	}
	if p.Fragment.Later() {
		return readData(p, b)
	}
	need := map[model.Protocol]int{
		model.TCP: tcpHeaderLen, model.UDP: udpHeaderLen, model.SCTP: sctpHeaderLen, model.ICMP: icmpHeaderLen,
		model.ICMPv6: icmpHeaderLen,
	}[p.Proto]
	if !whole && need > 8 {
		need = 8 // the minimum by RFC 792
	}
	if len(b) < need {
		return fmt.Errorf("%s header cut off", p.Proto)
	}
	if p.HasPorts() {
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	}
	if whole && !p.Fragment.Any() {
		if err := p.verify(b); err != nil && !r.lenient {
			return err
		} else if err != nil && depth == maxInner {
			r.sound = false
		}
	}
	switch {
	case p.Proto == model.TCP && len(b) > 13:
		p.TCPFlags = b[13]
	case p.Proto == model.SCTP && len(b) > sctpHeaderLen:
		p.Chunk = b[sctpHeaderLen]
	case p.IsICMP():
		p.ICMPType, p.ICMPCode = b[0], b[1]
		if p.IsEcho() {
			p.ICMPID = binary.BigEndian.Uint16(b[4:])
		}
		if p.IsICMPError() {
			if depth == 0 {
				return fmt.Errorf("an ICMP error about an ICMP error")
			}
			inner, err := r.unmarshal(b[icmpHeaderLen:], depth-1)
			if err != nil {
				return fmt.Errorf("quoted: %w", err)
			}
			p.Inner = &inner
		}
	}
	return nil
}

func (p *Packet) verify(b []byte) error {
	ok := true
	switch p.Proto {
	case model.TCP:
		ok = checksum(p.pseudo(len(b)), b) == 0
	case model.UDP:
		ok = binary.BigEndian.Uint16(b[6:]) == 0 || checksum(p.pseudo(len(b)), b) == 0
	case model.ICMP, model.ICMPv6:
		ok = checksum(p.icmpPseudo(len(b)), b) == 0
	case model.SCTP:
		ok = binary.LittleEndian.Uint32(b[8:]) == castagnoli(b)
	}
	if !ok {
		return fmt.Errorf("wrong %s checksum", p.Proto)
	}
	return nil
}

// icmpPseudo returns the sum of ICMPv6's pseudo header; ICMP has none.
func (p *Packet) icmpPseudo(length int) uint32 {
	if p.Proto == model.ICMP {
		return 0
	}
	return p.pseudo(length)
}

// pseudo is the sum of the pseudo header of TCP and UDP, and of ICMPv6.
func (p *Packet) pseudo(length int) uint32 {
	src, dst := p.Src.AsSlice(), p.Dst.AsSlice()
	return sum16(src) + sum16(dst) + uint32(p.Proto) + uint32(length)
}

func sum16(b []byte) uint32 {
	var s uint32
	for ; len(b) > 1; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

// Checksum is the Internet checksum of b (RFC 1071).
func Checksum(b []byte) uint16 { return checksum(0, b) }

// checksum is the Internet checksum of b continued from start (RFC 1071).
func checksum(start uint32, b []byte) uint16 {
	s := start + sum16(b)
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// castagnoli is the SCTP checksum: CRC32c with the checksum field taken as zero (RFC 9260 appendix A).
func castagnoli(b []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, b[:8])
	sum = crc32.Update(sum, table, []byte{0, 0, 0, 0})
	return crc32.Update(sum, table, b[sctpHeaderLen:])
}
