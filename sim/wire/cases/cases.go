package cases

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// Frame is a frame on an interface, by number.
type Frame struct {
	On    int
	Bytes []byte
}

// Case is frames that arrive one after another.
type Case struct {
	Name string
	In   []Frame
}

// List returns the cases, in order.
func List() []Case {
	return slices.Concat(arpCases(), ip4Cases(), sizeCases(), ip6Cases(), bridgeCases(), newCases())
}

// newCases are about pods to which VPP has routes before it talks with them: it neither asks for them nor learns what they say.
func newCases() []Case {
	return []Case{
		{"new: udp to a pod whose interface has no address", []Frame{udp("10.1.0.2", "10.9.0.6", 5, 6, 10).on(A)}},
		{"new: that pod asks for its gateway", []Frame{arp(New, frame.Request, HostMAC(New), "10.9.0.6", "169.254.1.1")}},
		{"new: udp to that pod again", []Frame{udp("10.1.0.2", "10.9.0.6", 5, 7, 10).on(A)}},
		{"new: udp by IPv6 to a pod whose interface has no address", []Frame{udp("fd00:1::2", "fd00:9::6", 5, 6, 10).on(A)}},
		{"new: that pod says where it is", []Frame{advertise(New, "fd00:9::6", "fd00:1::1")}},
		{"new: that pod solicits VPP", []Frame{solicit(New, "fd00:9::6", "ff02::1:ff00:6", "fe80::fe:ff:fe00:6")}},
		{"new: udp by IPv6 to that pod again", []Frame{udp("fd00:1::2", "fd00:9::6", 5, 7, 10).on(A)}},
		{"new: udp by IPv6 to a pod whose interface is only unnumbered", []Frame{udp("fd00:1::2", "fd00:9::7", 5, 6, 10).on(A)}},
		{"new: that pod of an unnumbered interface says where it is", []Frame{advertise(Only4, "fd00:9::7", "fd00:1::1")}},
		{"new: udp by IPv6 to the pod of that interface again", []Frame{udp("fd00:1::2", "fd00:9::7", 5, 7, 10).on(A)}},
	}
}

func arpCases() []Case {
	stranger := [6]byte{2, 0xca, 9, 9, 9, 9}
	own := arp(A, frame.Request, HostMAC(A), "10.1.0.2", "10.1.0.1")
	other := slices.Clone(own.Bytes)
	copy(other[6:], stranger[:])
	return []Case{
		{"arp: for VPP's address", []Frame{own}},
		{"arp: for another host", []Frame{arp(A, frame.Request, HostMAC(A), "10.1.0.2", "10.1.0.7")}},
		{"arp: from a sender outside the subnet", []Frame{arp(A, frame.Request, stranger, "10.5.0.2", "10.1.0.1")}},
		{"arp: of VPP's address on another interface", []Frame{arp(A, frame.Request, stranger, "10.1.0.3", "10.2.0.1")}},
		{"arp: the sender says it is VPP", []Frame{arp(A, frame.Request, stranger, "10.1.0.1", "10.1.0.1")}},
		{"arp: the frame has another source", []Frame{{A, other}}},
		{"arp: gratuitous, of nobody known", []Frame{arp(A, frame.Request, stranger, "10.1.0.44", "10.1.0.44")}},
		{"arp: that one was not learned", []Frame{udp("10.1.0.2", "10.1.0.44", 5, 6, 10).on(A)}},
		{"arp: a pod asks for its gateway", []Frame{arp(Pod, frame.Request, HostMAC(Pod), "10.9.0.2", "169.254.1.1")}},
		{"arp: a pod with another address asks for the gateway", []Frame{arp(Pod, frame.Request, stranger, "10.9.0.3", "169.254.1.1")}},
		{"arp: a pod asks for an address of another interface", []Frame{arp(Pod, frame.Request, HostMAC(Pod), "10.9.0.2", "10.1.0.1")}},
		{"a ping to the pod that was learned", []Frame{ping("10.1.0.2", "10.9.0.2", 8, 20).on(A)}},
	}
}

func ip4Cases() []Case {
	spoiled := func(d *datagram) { d.body[len(d.body)-1]++ }
	wrongMAC := ping("10.1.0.2", "10.1.0.1", 3, 8).on(A)
	wrongMAC.Bytes[5] ^= 0x40
	tagged := frame.Tag(ping("10.1.0.2", "10.1.0.1", 3, 8).on(A).Bytes, 5)
	unroutable := udp("10.1.0.2", "10.66.0.1", 5, 6, 30)
	return []Case{
		{"ping VPP", []Frame{ping("10.1.0.2", "10.1.0.1", 3, 9).on(A)}},
		{"ping VPP, a wrong IP checksum", []Frame{ping("10.1.0.2", "10.1.0.1", 3, 9).with(func(d *datagram) { d.badIP = true }).on(A)}},
		{"ping VPP, a wrong ICMP checksum", []Frame{ping("10.1.0.2", "10.1.0.1", 3, 9).with(spoiled).on(A)}},
		{"ping VPP's other address", []Frame{ping("10.1.0.2", "10.2.0.1", 3, 64).on(A)}},
		{"ping VPP, to another station", []Frame{wrongMAC}},
		{"ping VPP, with the tag of a VLAN", []Frame{{A, tagged}}},
		{"a frame of an unknown type", []Frame{{A, append(append(append([]byte(nil), wrongMAC.Bytes[:12]...), 0x88, 0xb5), make([]byte, 46)...)}}},
		{"udp to a neighbour nobody knows", []Frame{udp("10.1.0.2", "10.2.0.2", 1000, 2000, 10).on(A)}},
		{"the neighbour answers", []Frame{arp(B, frame.Answer, HostMAC(B), "10.2.0.2", "10.2.0.1")}},
		{"udp to the neighbour", []Frame{udp("10.1.0.2", "10.2.0.2", 1000, 2000, 10).on(A)}},
		{"udp with a wrong checksum", []Frame{udp("10.1.0.2", "10.2.0.2", 1000, 2000, 10).with(spoiled).on(A)}},
		{"udp without a checksum", []Frame{udp("10.1.0.2", "10.2.0.2", 1000, 2000, 11).with(func(d *datagram) { d.body[6], d.body[7] = 0, 0 }).on(A)}},
		{"tcp, with the bytes of padding", []Frame{pad(tcp("10.1.0.2", "10.2.0.2", 1000, 80, packet.SYN, 0).on(A))}},
		{"an IP packet longer than its frame", []Frame{cutOff(udp("10.1.0.2", "10.2.0.2", 1000, 2000, 100).on(A), 20)}},
		{"udp at the end of its life", []Frame{udp("10.1.0.2", "10.2.0.2", 1000, 2000, 10).with(func(d *datagram) { d.ttl = 1 }).on(A)}},
		{"a long one at the end of its life", []Frame{udp("10.1.0.2", "10.2.0.2", 1000, 2001, 1200).with(func(d *datagram) { d.ttl = 1 }).on(A)}},
		{"udp to an unreachable prefix", []Frame{unroutable.on(A)}},
		{"udp to no prefix", []Frame{udp("10.1.0.2", "10.77.0.1", 5, 6, 30).on(A)}},
		{"udp to a port that VPP does not have", []Frame{udp("10.1.0.2", "10.1.0.1", 1000, 3333, 30).on(A)}},
		{"udp to that port, a wrong checksum", []Frame{udp("10.1.0.2", "10.1.0.1", 1001, 3333, 30).with(spoiled).on(A)}},
		{"tcp to VPP is punted", []Frame{tcp("10.2.0.2", "10.1.0.1", 1000, 6443, packet.SYN, 3).on(B)}},
		{"tcp to VPP, a wrong checksum", []Frame{tcp("10.2.0.2", "10.1.0.1", 1000, 6443, packet.SYN, 3).with(spoiled).on(B)}},
		{"tcp to VPP, from VPP's address", []Frame{tcp("10.2.0.1", "10.1.0.1", 1000, 6443, packet.SYN, 3).on(B)}},
		{"an echo reply to VPP", []Frame{ping("10.2.0.2", "10.1.0.1", 1000, 3).with(func(d *datagram) { d.body[0] = 0; *d = d.with(func(*datagram) {}).finish0() }).on(B)}},
		{"an error to VPP", []Frame{icmpError("10.2.0.2", "10.1.0.1", udp("10.1.0.1", "10.2.0.2", 7, 8, 4)).on(B)}},
		{"a forwarded error", []Frame{icmpError("10.2.0.2", "10.1.0.9", udp("10.1.0.9", "10.2.0.2", 7, 8, 4)).on(B)}},
		{"an error about an error's packet cut off", []Frame{icmpError("10.2.0.2", "10.1.0.9", tcp("10.1.0.9", "10.2.0.2", 7, 8, 2, 40)).with(short).on(B)}},
		{"a protocol nobody knows", []Frame{datagram{src: "10.1.0.2", dst: "10.2.0.2", proto: 47, body: payload(30)}.on(A)}},
		{"broadcast of the subnet", []Frame{udp("10.1.0.2", "10.1.0.255", 5, 6, 10).on(A)}},
		{"multicast", []Frame{udp("10.1.0.2", "224.0.0.5", 5, 6, 10).on(A)}},
	}
}

func short(d *datagram) {
	d.body = d.body[:8+20+8]
	*d = d.finish0()
}

// finish0 computes the checksum of ICMP once more.
func (d datagram) finish0() datagram {
	d.body = slices.Clone(d.body)
	d.body[2], d.body[3] = 0, 0
	return d.finish(2)
}

func icmpError(src, dst string, about datagram) datagram {
	d := ping(src, dst, 0, 0)
	d.body = append([]byte{packet.Unreachable, packet.CodePort, 0, 0, 0, 0, 0, 0}, about.bytes()...)
	return d.finish(2)
}

func pad(f Frame) Frame { return Frame{f.On, append(f.Bytes, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff)} }

func cutOff(f Frame, n int) Frame { return Frame{f.On, f.Bytes[:len(f.Bytes)-n]} }

func sizeCases() []Case {
	df := func(d *datagram) { d.df = true }
	all := func(list []datagram, n int) (out []Frame) {
		for _, d := range list {
			out = append(out, d.on(n))
		}
		return out
	}
	piece := udp("10.1.0.2", "10.2.0.2", 1000, 2000, 2800).inPieces(1400)
	return []Case{
		{"as long as the link allows", []Frame{udp("10.1.0.2", "10.2.0.2", 1, 2, smallMTU-28).with(df).on(A)}},
		{"a byte longer, not to be fragmented", []Frame{udp("10.1.0.2", "10.2.0.2", 1, 2, smallMTU-27).with(df).on(A)}},
		{"a byte longer", []Frame{udp("10.1.0.2", "10.2.0.2", 1, 2, smallMTU-27).on(A)}},
		{"nearly twice as long", []Frame{udp("10.1.0.2", "10.2.0.2", 1, 2, 1450).on(A)}},
		{"a fragment that is too long", []Frame{piece[0].on(A)}},
		{"its last part, too long as well", []Frame{piece[1].on(A)}},
		{"fragments pass", all(udp("10.1.0.2", "10.2.0.2", 3, 4, 1600).inPieces(800), A)},
		{"ping VPP in fragments", all(ping("10.1.0.2", "10.1.0.1", 9, 1500).inPieces(800), A)},
		{"ping VPP in fragments, the last one first", all(reversed(ping("10.1.0.2", "10.1.0.1", 10, 1500).inPieces(800)), A)},
		{"ping VPP in fragments, over the small link", all(ping("10.2.0.2", "10.1.0.1", 11, 1500).inPieces(800), B)},
		{"udp to a port that VPP does not have, in fragments", all(udp("10.1.0.2", "10.1.0.1", 1002, 3333, 1500).inPieces(800), A)},
		{"tcp to VPP, in fragments", all(tcp("10.2.0.2", "10.1.0.1", 1000, 6443, packet.SYN, 900).inPieces(800), B)},
	}
}

func reversed(list []datagram) []datagram {
	slices.Reverse(list)
	return list
}

func ip6Cases() []Case {
	spoiled := func(d *datagram) { d.body[len(d.body)-1]++ }
	last := func(d *datagram) { d.ttl = 1 }
	return []Case{
		{"solicit VPP's address", []Frame{solicit(A, "fd00:1::2", "ff02::1:ff00:1", "fd00:1::1")}},
		{"solicit it by unicast", []Frame{solicit(A, "fd00:1::2", "fd00:1::1", "fd00:1::1")}},
		{"solicit another host", []Frame{solicit(A, "fd00:1::2", "ff02::1:ff00:7", "fd00:1::7")}},
		{"solicit from elsewhere", []Frame{solicit(A, "fd00:5::2", "ff02::1:ff00:1", "fd00:1::1")}},
		{"solicit another address of the group", []Frame{solicit(A, "fd00:1::2", "ff02::1:ff00:1", "fd00:9::1")}},
		{"ping VPP by IPv6", []Frame{ping("fd00:1::2", "fd00:1::1", 3, 9).on(A)}},
		{"ping VPP by IPv6, a wrong checksum", []Frame{ping("fd00:1::2", "fd00:1::1", 3, 9).with(spoiled).on(A)}},
		{"udp to an IPv6 neighbour nobody knows", []Frame{udp("fd00:1::2", "fd00:2::2", 1000, 2000, 10).on(A)}},
		{"the IPv6 neighbour answers", []Frame{advertise(B, "fd00:2::2", "fd00:2::1")}},
		{"udp to the IPv6 neighbour", []Frame{udp("fd00:1::2", "fd00:2::2", 1000, 2000, 10).on(A)}},
		{"udp by IPv6 with a wrong checksum", []Frame{udp("fd00:1::2", "fd00:2::2", 1000, 2000, 10).with(spoiled).on(A)}},
		{"udp by IPv6 at the end of its life", []Frame{udp("fd00:1::2", "fd00:2::2", 1000, 2000, 10).with(last).on(A)}},
		{"a long IPv6 packet", []Frame{udp("fd00:1::2", "fd00:2::2", 1000, 2002, 1400).on(A)}},
		{"ping VPP by IPv6, long, over the small link", []Frame{ping("fd00:2::2", "fd00:1::1", 4, 1400).on(B)}},
		{"udp by IPv6 to a port that VPP does not have", []Frame{udp("fd00:1::2", "fd00:1::1", 1000, 3333, 30).on(A)}},
		{"udp by IPv6 to no prefix", []Frame{udp("fd00:1::2", "fd00:77::1", 5, 6, 30).on(A)}},
		{"solicit VPP's address on the other interface", []Frame{solicit(B, "fd00:2::2", "ff02::1:ff00:1", "fd00:2::1")}},
		{"tcp by IPv6 to VPP: no redirect", []Frame{tcp("fd00:2::2", "fd00:1::1", 1000, 6443, packet.SYN, 3).on(B)}},
	}
}

func bridgeCases() []Case {
	far, near := [6]byte{2, 0xca, 0, 0, 7, 2}, HostMAC(Bridged)
	ask := arp(Bridged, frame.Request, near, "10.7.0.3", "10.7.0.1")
	farAsk := arp(Bridged, frame.Request, far, "10.7.0.2", "10.7.0.1")
	inner := func(dst, src [6]byte, d datagram) []byte { return raw(0, dst, src, d.bytes()).Bytes }
	wrongVNI := tunneled(farAsk.Bytes)
	wrongVNI.Bytes[14+20+8+6]++
	return []Case{
		{"arp on a port for the bridge's own address", []Frame{ask}},
		{"arp out of the tunnel for the bridge's own address", []Frame{tunneled(farAsk.Bytes)}},
		{"a frame between two ports", []Frame{raw(Bridged, far, near, udp("10.7.0.3", "10.7.0.2", 1, 2, 10).bytes())}},
		{"a frame back", []Frame{tunneled(inner(near, far, udp("10.7.0.2", "10.7.0.3", 2, 1, 10)))}},
		{"a frame to nobody known", []Frame{raw(Bridged, [6]byte{2, 1, 1, 1, 1, 1}, near, udp("10.7.0.3", "10.7.0.9", 1, 2, 10).bytes())}},
		{"out of the tunnel to nobody known", []Frame{tunneled(inner([6]byte{2, 1, 1, 1, 1, 1}, far, udp("10.7.0.2", "10.7.0.9", 1, 2, 10)))}},
		{"a frame to its own port", []Frame{raw(Bridged, near, [6]byte{2, 2, 2, 2, 2, 2}, udp("10.7.0.8", "10.7.0.3", 1, 2, 10).bytes())}},
		{"ping the bridge's own address out of the tunnel", []Frame{tunneled(inner(bviMAC, far, ping("10.7.0.2", "10.7.0.1", 5, 20)))}},
		{"routed out of the tunnel", []Frame{tunneled(inner(bviMAC, far, udp("10.7.0.2", "10.2.0.2", 5, 6, 20)))}},
		{"routed into the tunnel", []Frame{udp("10.1.0.2", "10.7.0.2", 5, 6, 20).on(A)}},
		{"routed to the port", []Frame{udp("10.1.0.2", "10.7.0.3", 5, 6, 20).on(A)}},
		{"routed to nobody known", []Frame{udp("10.1.0.2", "10.7.0.99", 5, 6, 20).on(A)}},
		{"a tunnel with another number", []Frame{wrongVNI}},
		{"a tunnel of another address", []Frame{udp("10.1.0.2", "192.168.16.1", 5, 4789, 40).on(A)}},
	}
}

// NATList returns the cases after NAT, in order.
func NATList() []Case {
	spoiled := func(d *datagram) { d.body[len(d.body)-1]++ }
	noSum := func(d *datagram) { d.body[6], d.body[7] = 0, 0 }
	syn, answer := tcp("10.1.0.2", "10.96.0.10", 40000, 80, packet.SYN, 0), tcp("10.2.0.2", "10.1.0.2", 8080, 40000, packet.SYN|packet.ACK, 0)
	translated := tcp("10.1.0.2", "10.2.0.2", 40000, 8080, packet.ACK, 11)
	var pieces, back []Frame
	for _, d := range udp("10.1.0.2", "10.96.0.10", 40003, 53, 1500).inPieces(800) {
		pieces = append(pieces, d.on(A))
	}
	for _, d := range udp("10.2.0.2", "10.1.0.2", 5353, 40003, 1500).inPieces(800) {
		back = append(back, d.on(B))
	}
	return []Case{
		{"nat: a connection to a Service", []Frame{syn.on(A)}},
		{"nat: its answer", []Frame{answer.on(B)}},
		{"nat: data", []Frame{tcp("10.1.0.2", "10.96.0.10", 40000, 80, packet.ACK, 11).on(A)}},
		{"nat: data with a wrong checksum", []Frame{tcp("10.1.0.2", "10.96.0.10", 40000, 80, packet.ACK, 12).with(spoiled).on(A)}},
		{"nat: data back", []Frame{tcp("10.2.0.2", "10.1.0.2", 8080, 40000, packet.ACK, 13).on(B)}},
		{"nat: an error about the data", []Frame{icmpError("10.2.0.2", "10.1.0.2", translated).on(B)}},
		{"nat: the data comes to the end of its life", []Frame{tcp("10.1.0.2", "10.96.0.10", 40000, 80, packet.ACK, 11).with(func(d *datagram) { d.ttl = 1 }).on(A)}},
		{"nat: udp to a Service", []Frame{udp("10.1.0.2", "10.96.0.10", 40001, 53, 9).on(A)}},
		{"nat: its answer by udp", []Frame{udp("10.2.0.2", "10.1.0.2", 5353, 40001, 10).on(B)}},
		{"nat: udp without a checksum", []Frame{udp("10.1.0.2", "10.96.0.10", 40002, 53, 9).with(noSum).on(A)}},
		{"nat: udp in fragments", pieces},
		{"nat: udp back in fragments", back},
		{"nat: too long, not to be fragmented", []Frame{tcp("10.1.0.2", "10.96.0.10", 40000, 80, packet.ACK, 1300).with(func(d *datagram) { d.df = true }).on(A)}},
		{"nat: past the Service", []Frame{tcp("10.1.0.2", "10.2.0.2", 40009, 8080, packet.SYN, 0).on(A)}},
	}
}

// Show returns frames as text, one a line, in order of their interfaces, without the random numbers of VPP: the identification of fragments,
// and the source port of a tunnel's packets.
func Show(list []Frame) string {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Frame) int { return a.On - b.On })
	var b strings.Builder
	for _, f := range list {
		if e, ok := frame.ParseEthernet(f.Bytes); ok && !own(&e) {
			fmt.Fprintf(&b, "  %d %s\n", f.On, hex.EncodeToString(masked(f.Bytes)))
		}
	}
	return b.String()
}

// own reports whether a frame is of VPP's own accord: it looks for routers and listeners of IPv6, and says where it is.
func own(e *frame.Ethernet) bool {
	if e.Type != frame.TypeIPv6 || len(e.Payload) < 41 {
		return false
	}
	kind := e.Payload[40]
	return e.Payload[6] == 0 || e.Payload[6] == 58 && (kind == packet.RouterSolicit || kind == packet.RouterAdvert || kind == 143)
}

// masked blanks what is random, and with it the header's checksum.
func masked(f []byte) []byte {
	b := slices.Clone(f)
	const ip = 14
	if len(b) < ip+20 || binary.BigEndian.Uint16(b[12:]) == frame.TypeARP {
		return b
	}
	if b[ip]>>4 == 6 {
		if b[ip+6] == 44 && len(b) > ip+48 {
			copy(b[ip+44:], "\x00\x00\x00\x00")
		}
		return b
	}
	switch {
	case binary.BigEndian.Uint16(b[ip+6:])&0x3fff != 0:
		b[ip+4], b[ip+5], b[ip+10], b[ip+11] = 0, 0, 0, 0
	case len(b) < ip+28:
	case b[ip+9] == 17 && binary.BigEndian.Uint16(b[ip+22:]) == 4789:
		b[ip+20], b[ip+21] = 0, 0
		return append(b[:ip+36], masked(b[ip+36:])...)
	case b[ip+9] == 1 && b[ip+20] == packet.EchoReply: // VPP chooses an identification
		b[ip+4], b[ip+5], b[ip+10], b[ip+11] = 0, 0, 0, 0
	}
	return b
}
