package frame

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"net/netip"
)

const sctpLen = 12

// wordSum adds the 16-bit words of b.
func wordSum(b []byte) uint32 {
	var s uint64
	for ; len(b) >= 8; b = b[8:] {
		w := binary.BigEndian.Uint64(b)
		s += w>>48 + w>>32&0xffff + w>>16&0xffff + w&0xffff
	}
	for ; len(b) > 1; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint32(s)
}

// fold is the Internet checksum of a sum.
func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// pseudo is the sum of the pseudo header of an IP packet's transport header, of a length.
func pseudo(b []byte, length int) uint32 {
	if b[0]>>4 == 6 {
		return wordSum(b[8:40]) + uint32(b[6]) + uint32(length)
	}
	return wordSum(b[12:20]) + uint32(b[9]) + uint32(length)
}

// castagnoli is the checksum of SCTP.
func castagnoli(b []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	s := crc32.Update(crc32.Update(0, table, b[:8]), table, []byte{0, 0, 0, 0})
	return crc32.Update(s, table, b[sctpLen:])
}

// CommonBits returns the number of leading bits that two addresses of a family share.
func CommonBits(a, b netip.Addr) int {
	x, y := a.As16(), b.As16()
	for i := range x {
		if d := x[i] ^ y[i]; d != 0 {
			return 8*i + bits.LeadingZeros8(d)
		}
	}
	return 8 * len(x)
}
