package cases

import (
	"encoding/binary"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// datagram is an IP packet to build.
type datagram struct {
	src, dst     string
	proto        model.Protocol
	ttl          uint8
	df           bool
	id, fragment uint16 // the latter is the word with flags and offset
	body         []byte
	badIP        bool
}

func (d datagram) bytes() []byte {
	src, dst := netip.MustParseAddr(d.src), netip.MustParseAddr(d.dst)
	ttl := d.ttl
	if ttl == 0 {
		ttl = 64
	}
	if src.Is6() {
		b := make([]byte, 40, 40+len(d.body))
		b[0], b[6], b[7] = 0x60, uint8(d.proto), ttl
		binary.BigEndian.PutUint16(b[4:], uint16(len(d.body)))
		copy(b[8:], src.AsSlice())
		copy(b[24:], dst.AsSlice())
		return append(b, d.body...)
	}
	b := make([]byte, 20, 20+len(d.body))
	b[0], b[8], b[9] = 0x45, ttl, uint8(d.proto)
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(d.body)))
	binary.BigEndian.PutUint16(b[4:], d.id)
	word := d.fragment
	if d.df {
		word |= 0x4000
	}
	binary.BigEndian.PutUint16(b[6:], word)
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], internet(0, b))
	if d.badIP {
		b[10]++
	}
	return append(b, d.body...)
}

// internet is the Internet checksum.
func internet(start uint32, b []byte) uint16 {
	s := start
	for i := 0; i < len(b); i += 2 {
		s += uint32(b[i]) << 8
		if i+1 < len(b) {
			s += uint32(b[i+1])
		}
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// finish writes the checksum at a place of the body.
func (d datagram) finish(at int) datagram {
	start := uint32(0)
	if d.proto != model.ICMP {
		src, dst := netip.MustParseAddr(d.src), netip.MustParseAddr(d.dst)
		pseudo := append(append(src.AsSlice(), dst.AsSlice()...), 0, uint8(d.proto), byte(len(d.body)>>8), byte(len(d.body)))
		start = uint32(^internet(0, pseudo))
	}
	binary.BigEndian.PutUint16(d.body[at:], internet(start, d.body))
	return d
}

func payload(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	return b
}

func udp(src, dst string, sport, dport uint16, n int) datagram {
	b := make([]byte, 8, 8+n)
	binary.BigEndian.PutUint16(b, sport)
	binary.BigEndian.PutUint16(b[2:], dport)
	binary.BigEndian.PutUint16(b[4:], uint16(8+n))
	return datagram{src: src, dst: dst, proto: model.UDP, body: append(b, payload(n)...)}.finish(6)
}

func tcp(src, dst string, sport, dport uint16, flags uint8, n int) datagram {
	b := make([]byte, 20, 20+n)
	binary.BigEndian.PutUint16(b, sport)
	binary.BigEndian.PutUint16(b[2:], dport)
	b[7], b[12], b[13], b[14] = 9, 0x50, flags, 0xff
	return datagram{src: src, dst: dst, proto: model.TCP, body: append(b, payload(n)...)}.finish(16)
}

func ping(src, dst string, id uint16, n int) datagram {
	b := make([]byte, 8, 8+n)
	d := datagram{src: src, dst: dst, proto: model.ICMP}
	b[0] = packet.EchoRequest
	if netip.MustParseAddr(src).Is6() {
		d.proto, b[0] = model.ICMPv6, packet.EchoRequest6
	}
	binary.BigEndian.PutUint16(b[4:], id)
	b[7] = 1
	d.body = append(b, payload(n)...)
	return d.finish(2)
}

func (d datagram) with(change func(*datagram)) datagram {
	change(&d)
	return d
}

// inPieces returns an IPv4 datagram in fragments of n bytes.
func (d datagram) inPieces(n int) (out []datagram) {
	for at := 0; at < len(d.body); at += n {
		f := d
		f.body, f.fragment, f.id = d.body[at:min(at+n, len(d.body))], uint16(at/8), 77
		if at+n < len(d.body) {
			f.fragment |= 0x2000
		}
		out = append(out, f)
	}
	return out
}

// on puts a packet into a frame for interface n.
func (d datagram) on(n int) Frame { return raw(n, VPPMAC(n), HostMAC(n), d.bytes()) }

func raw(n int, dst, src [6]byte, b []byte) Frame {
	e := frame.Ethernet{Dst: dst, Src: src, Type: frame.IPType(b), Payload: b}
	return Frame{n, e.Bytes()}
}

func arp(n int, op uint16, senderMAC [6]byte, sender, target string) Frame {
	m := frame.ARP{Op: op, SenderMAC: senderMAC, Sender: netip.MustParseAddr(sender), Target: netip.MustParseAddr(target)}
	e := frame.Ethernet{Dst: frame.Broadcast(), Src: senderMAC, Type: frame.TypeARP, Payload: m.Bytes()}
	return Frame{n, e.Bytes()}
}

func solicit(n int, src, dst, target string) Frame {
	to := netip.MustParseAddr(dst)
	d := frame.Discovery{Kind: packet.NeighborSolicit, Src: netip.MustParseAddr(src), Dst: to, Target: netip.MustParseAddr(target), Link: HostMAC(n)}
	e := frame.Ethernet{Dst: VPPMAC(n), Src: HostMAC(n), Type: frame.TypeIPv6, Payload: d.Bytes()}
	if to.IsMulticast() {
		e.Dst = frame.GroupMAC(to)
	}
	return Frame{n, e.Bytes()}
}

func advertise(n int, src, dst string) Frame {
	a := netip.MustParseAddr(src)
	d := frame.Discovery{Kind: packet.NeighborAdvert, Src: a, Dst: netip.MustParseAddr(dst), Target: a, Link: HostMAC(n)}
	e := frame.Ethernet{Dst: VPPMAC(n), Src: HostMAC(n), Type: frame.TypeIPv6, Payload: d.Bytes()}
	return Frame{n, e.Bytes()}
}

// tunneled puts a frame into the tunnel, as its other end does.
func tunneled(inner []byte) Frame {
	head := []byte{8, 0, 0, 0, 0, 0, vni, 0}
	d := udp("192.168.16.2", "192.168.16.1", 55555, 4789, 0)
	d.body = append(append(d.body, head...), inner...)
	binary.BigEndian.PutUint16(d.body[4:], uint16(len(d.body)))
	d.body[6], d.body[7] = 0, 0
	return d.on(Underlay)
}
