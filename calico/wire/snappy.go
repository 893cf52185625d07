package wire

import (
	"hash/crc32"
	"io"

	"github.com/golang/snappy"
)

// SnappyHeader begins a stream of snappy's framing format.
const SnappyHeader = "\xff\x06\x00\x00sNaPpY"

// chunk is the most bytes that one chunk of the framing format holds.
const chunk = 64 << 10

// NewSnappyReader reads a stream of snappy's framing format. Chunks longer than the format allows are an error.
func NewSnappyReader(r io.Reader) io.Reader { return snappy.NewReader(r) }

// tooShort is the length below which nothing is compressed: it would gain nothing and need a table of 32 KiB.
const tooShort = 128

// AppendSnappy appends plain in snappy's framing format, without the header. The chunks are independent, so that compressed
// bytes can be sent in many streams. It needs a stack of 64 KiB, except for a few bytes of input.
func AppendSnappy(dst, plain []byte) []byte {
	if len(plain) < tooShort {
		if len(plain) == 0 {
			return dst
		}
		return append(appendChunk(dst, 1, len(plain), plain), plain...)
	}
	scratch := make([]byte, snappy.MaxEncodedLen(min(len(plain), chunk)))
	for len(plain) > 0 {
		part := plain[:min(len(plain), chunk)]
		plain = plain[len(part):]
		kind, body := byte(0), snappy.Encode(scratch, part)
		if len(body) >= len(part)-len(part)/8 {
			kind, body = 1, part
		}
		dst = append(appendChunk(dst, kind, len(body), part), body...)
	}
	return dst
}

// appendChunk appends the head of a chunk: its kind, the length of the rest, and the checksum of plain.
func appendChunk(dst []byte, kind byte, size int, plain []byte) []byte {
	sum := crc32.Checksum(plain, crc32.MakeTable(crc32.Castagnoli))
	sum = (sum>>15 | sum<<17) + 0xa282ead8
	size += 4
	return append(dst, kind, byte(size), byte(size>>8), byte(size>>16), byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
}
