package frame

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

const (
	udpLen    = 8
	vxlanLen  = 8
	validVNI  = 0x08
	vxlanLife = 254 // the TTL that VPP gives the outer packet before its rewrite
)

// Tunnel is one end of VXLAN: addresses and ports of outer packets.
type Tunnel struct {
	Outer packet.Packet // addresses and DstPort; SrcPort comes from the flow
	VNI   uint32
}

// Wrap returns the outer packet of a frame. The source port is a hash of the frame's addresses, so that flows take different paths.
func (t *Tunnel) Wrap(frame []byte) (*Load, error) {
	p := t.Outer
	p.Proto, p.TTL, p.SrcPort = model.UDP, vxlanLife, flowPort(frame)
	body := make([]byte, 0, vxlanLen+len(frame))
	body = append(body, validVNI, 0, 0, 0)
	return Datagram(p, append(binary.BigEndian.AppendUint32(body, t.VNI<<8), frame...))
}

// Datagram returns a packet of UDP with a body, as VPP makes it: without a checksum of IPv4, and routers may fragment it.
func Datagram(p packet.Packet, body []byte) (*Load, error) {
	head, err := p.Marshal()
	if err != nil {
		return nil, err
	}
	n, udp := len(head)+len(body), len(head)-udpLen
	if n > 1<<16-1 {
		return nil, ErrHeader
	}
	b := append(append(make([]byte, 0, n), head...), body...)
	binary.BigEndian.PutUint16(b[udp+4:], uint16(n-udp))
	if p.Src.Is6() {
		binary.BigEndian.PutUint16(b[4:], uint16(n-ip6Len))
		b[udp+6], b[udp+7] = 0, 0
		binary.BigEndian.PutUint16(b[udp+6:], max(1, fold(pseudo(b, n-udp)+wordSum(b[udp:]))))
	} else {
		binary.BigEndian.PutUint16(b[2:], uint16(n))
		binary.BigEndian.PutUint16(b[6:], 0)
		b[udp+6], b[udp+7] = 0, 0
		headerSum(b)
	}
	return Read(b)
}

// flowPort hashes the addresses, and the ports where there are some.
func flowPort(frame []byte) uint16 {
	h := fnv.New32a()
	_, _ = h.Write(frame[:min(len(frame), headerLen)])
	if e, ok := ParseEthernet(frame); ok && (e.Type == TypeIPv4 || e.Type == TypeIPv6) {
		if l, err := Read(e.Payload); err == nil {
			src, dst := l.Header.Src.As16(), l.Header.Dst.As16()
			_, _ = h.Write(src[:])
			_, _ = h.Write(dst[:])
			_, _ = h.Write([]byte{byte(l.Header.SrcPort >> 8), byte(l.Header.SrcPort), byte(l.Header.DstPort >> 8), byte(l.Header.DstPort)})
		}
	}
	s := h.Sum32()
	return uint16(s>>16) ^ uint16(s)
}

// Unwrap returns the network identifier and the frame of an outer packet.
func (l *Load) Unwrap() (vni uint32, frame []byte, ok bool) {
	at, there := parts(l.Bytes, &l.Header)
	if !there || l.Header.Proto != model.UDP || len(l.Bytes) < at+udpLen+vxlanLen {
		return 0, nil, false
	}
	b := l.Bytes[at+udpLen:]
	return binary.BigEndian.Uint32(b[4:]) >> 8, b[vxlanLen:], b[0] == validVNI
}
