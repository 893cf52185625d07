package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
)

// Packet is a dropped packet of IP, as it was when VPP dropped it: a translation before that has replaced its addresses.
type Packet struct {
	Src, Dst         netip.Addr
	Protocol         uint8
	SrcPort, DstPort uint16 // of TCP, UDP and SCTP; type and code of ICMP and ICMPv6; 0 for later fragments
	Flags            uint8  // of TCP
	Bytes            int    // of the IP packet
	// Node is the graph node that dropped it, and Error its reason: "acl-plugin-in-ip4-fa", "ACL deny packets". "": the capture had
	// no room for them behind the packet.
	Node, Error string
}

// Numbers in headers.
const (
	fileHeader, recordHeader = 24, 16
	magic                    = 0xa1b2c3d4
	ethernet                 = 14

	typeIPv4, typeIPv6, typeVLAN, typeQinQ = 0x0800, 0x86dd, 0x8100, 0x88a8

	icmp, tcp, udp, icmp6, sctp, fragment6 = 1, 6, 17, 58, 132, 44
)

// ErrFile means that a file is no capture of VPP, or ends within a record.
var ErrFile = errors.New("not a complete capture of VPP")

// Parse reads a capture as VPP writes it: pcap in VPP's byte order, with the reason of the drop behind each packet. It skips frames that
// hold no IP packet.
func Parse(b []byte) ([]Packet, error) {
	var out []Packet
	err := eachFrame(b, func(frame []byte) {
		if p, ok := parseFrame(frame); ok {
			out = append(out, p)
		}
	})
	return out, err
}

// eachFrame calls f with each frame of a capture, as far as it is complete.
func eachFrame(b []byte, f func([]byte)) error {
	if len(b) < fileHeader || binary.LittleEndian.Uint32(b) != magic {
		return ErrFile
	}
	for b = b[fileHeader:]; len(b) > 0; {
		if len(b) < recordHeader {
			return ErrFile
		}
		size := binary.LittleEndian.Uint32(b[8:])
		if b = b[recordHeader:]; uint64(size) > uint64(len(b)) {
			return ErrFile
		}
		f(b[:size])
		b = b[size:]
	}
	return nil
}

// parseFrame reads an Ethernet frame, or an IP packet that came to VPP without one.
func parseFrame(b []byte) (Packet, bool) {
	for at := ethernet; len(b) >= at; at += 4 {
		switch binary.BigEndian.Uint16(b[at-2:]) {
		case typeIPv4, typeIPv6:
			return parseIP(b[at:])
		case typeVLAN, typeQinQ:
			continue
		}
		break
	}
	return parseIP(b)
}

func parseIP(b []byte) (p Packet, ok bool) {
	next, later := 0, false
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		next = int(b[0]&15) * 4
		p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		p.Protocol, p.Bytes, later = b[9], int(binary.BigEndian.Uint16(b[2:])), binary.BigEndian.Uint16(b[6:])&0x1fff != 0
		if next < 20 {
			return p, false
		}
	case len(b) >= 40 && b[0]>>4 == 6:
		next = 40
		p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		p.Protocol, p.Bytes = b[6], 40+int(binary.BigEndian.Uint16(b[4:]))
		if p.Protocol == fragment6 && len(b) >= 48 {
			p.Protocol, next, later = b[40], 48, binary.BigEndian.Uint16(b[42:])&0xfff8 != 0
		}
	default:
		return p, false
	}
	if p.Bytes < len(b) {
		p.Node, p.Error = readReason(b[p.Bytes:])
	}
	if !later && len(b) > next {
		p.readPorts(b[next:])
	}
	return p, true
}

func (p *Packet) readPorts(b []byte) {
	switch p.Protocol {
	case tcp, udp, sctp:
		if len(b) >= 4 {
			p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		}
		if p.Protocol == tcp && len(b) >= 14 {
			p.Flags = b[13]
		}
	case icmp, icmp6:
		if len(b) >= 2 {
			p.SrcPort, p.DstPort = uint16(b[0]), uint16(b[1])
		}
	}
}

// readReason reads "node: error" behind a packet, and perhaps behind the padding of a short frame.
func readReason(b []byte) (node, text string) {
	node, text, ok := strings.Cut(string(bytes.TrimLeft(b, "\x00")), ": ")
	for _, c := range node {
		if c < '!' || c > '~' {
			return "", ""
		}
	}
	if !ok {
		return "", ""
	}
	return node, strings.ToValidUTF8(text, "?")
}
