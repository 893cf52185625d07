package frame

import (
	"encoding/binary"
	"slices"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

const (
	fragmentLen  = 8
	fragmentNext = 44
	offsetMask   = 0x1fff
	vppBuffer    = 2048 // the most of a fragment that VPP makes
)

// Split returns the packet with the header p in fragments for a link, as ip_frag.c of VPP makes them; id is for a datagram that is whole.
// nil: it cannot be.
func (l *Load) Split(p packet.Packet, mtu int, id uint32) []*Load {
	b := l.As(p)
	if p.Src.Is6() {
		return read(split6(b, mtu, id))
	}
	return read(split4(b, mtu, uint16(id)))
}

func read(list [][]byte) []*Load {
	var out []*Load
	for _, b := range list {
		l, err := Read(b)
		if err != nil {
			return nil
		}
		out = append(out, l)
	}
	return out
}

// split4 cuts at 20 bytes whatever options there are, as VPP does.
func split4(b []byte, mtu int, id uint16) (out [][]byte) {
	most := (min(mtu, vppBuffer) - ip4Len) &^ 7
	w := binary.BigEndian.Uint16(b[6:])
	if most < fragmentLen || w&dontFragment != 0 {
		return nil
	}
	if w&(moreFragments|offsetMask) != 0 {
		id = binary.BigEndian.Uint16(b[4:])
	}
	for rest, at := b[ip4Len:], int(w&offsetMask)*fragmentLen; len(rest) > 0; {
		n := min(len(rest), most)
		f := append(slices.Clone(b[:ip4Len]), rest[:n]...)
		word := w&^offsetMask | uint16(at/fragmentLen)
		if n < len(rest) {
			word |= moreFragments
		}
		binary.BigEndian.PutUint16(f[2:], uint16(len(f)))
		binary.BigEndian.PutUint16(f[4:], id)
		binary.BigEndian.PutUint16(f[6:], word)
		headerSum(f)
		out, rest, at = append(out, f), rest[n:], at+n
	}
	return out
}

func split6(b []byte, mtu int, id uint32) (out [][]byte) {
	most := (min(mtu, vppBuffer) - ip6Len - fragmentLen) &^ 7
	if most < fragmentLen || b[6] == fragmentNext {
		return nil
	}
	for rest, at := b[ip6Len:], 0; len(rest) > 0; {
		n := min(len(rest), most)
		f := append(slices.Clone(b[:ip6Len]), make([]byte, fragmentLen)...)
		head := f[ip6Len:]
		head[0], f[6] = b[6], fragmentNext
		word := uint16(at)
		if n < len(rest) {
			word |= 1
		}
		binary.BigEndian.PutUint16(head[2:], word)
		binary.BigEndian.PutUint32(head[4:], id)
		f = append(f, rest[:n]...)
		binary.BigEndian.PutUint16(f[4:], uint16(len(f)-ip6Len))
		out, rest, at = append(out, f), rest[n:], at+n
	}
	return out
}

// mostDatagrams bounds what Parts keeps.
const mostDatagrams = 64

// Parts has the fragments of datagrams to VPP itself, for their bytes; when a datagram is whole, the engine's reassembly says. The zero
// value has none.
type Parts struct{ list []datagram }

type datagram struct {
	of    packet.Packet // addresses, protocol and identification
	loads []*Load
}

// Add keeps a fragment.
func (s *Parts) Add(l *Load) {
	of := key(l)
	i := slices.IndexFunc(s.list, func(d datagram) bool { return d.of.Equal(of) })
	if i < 0 {
		if len(s.list) == mostDatagrams {
			s.list = slices.Delete(s.list, 0, 1)
		}
		s.list, i = append(s.list, datagram{of: of}), len(s.list)
	}
	s.list[i].loads = append(s.list[i].loads, l)
	if len(s.list[i].loads) > mostDatagrams {
		s.list = slices.Delete(s.list, i, i+1)
	}
}

func key(l *Load) packet.Packet {
	h := &l.Header
	return packet.Packet{Src: h.Src, Dst: h.Dst, Proto: h.Proto, Fragment: packet.Fragment{ID: h.Fragment.ID}}
}

// Join returns the datagram that a fragment of it completes, and forgets it; the fragment itself if bytes are missing.
func (s *Parts) Join(l *Load) *Load {
	of := key(l)
	i := slices.IndexFunc(s.list, func(d datagram) bool { return d.of.Equal(of) })
	if i < 0 {
		return l
	}
	loads := s.list[i].loads
	s.list = slices.Delete(s.list, i, i+1)
	slices.SortStableFunc(loads, func(a, b *Load) int { return int(a.Header.Fragment.Offset) - int(b.Header.Fragment.Offset) })
	var body []byte
	for _, f := range loads {
		at, _ := parts(f.Bytes, &f.Header)
		if int(f.Header.Fragment.Offset) != len(body) || at > len(f.Bytes) {
			continue // once more, or a gap
		}
		body = append(body, f.Bytes[at:]...)
	}
	first := loads[0]
	head := slices.Clone(first.Bytes[:ip4Len])
	if first.Header.Src.Is6() {
		head = slices.Clone(first.Bytes[:ip6Len])
		head[6] = uint8(first.Header.Proto)
		binary.BigEndian.PutUint16(head[4:], uint16(len(body)))
	} else {
		head[0] = 0x45
		binary.BigEndian.PutUint16(head[2:], uint16(len(head)+len(body)))
		binary.BigEndian.PutUint16(head[6:], 0)
		headerSum(head)
	}
	whole, err := Read(append(head, body...))
	if err != nil {
		return l
	}
	return whole
}
