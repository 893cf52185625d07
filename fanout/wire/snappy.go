package wire

import (
	"hash/crc32"
	"io"

	"github.com/golang/snappy"
)

// SnappyHeader begins a stream of snappy's framing format.
const SnappyHeader = "\xff\x06\x00\x00sNaPpY"

// chunk is how many bytes one chunk of the framing format may hold.
const chunk = 64 << 10

// NewSnappyReader reads a stream of snappy's framing format. Chunks that are longer than the format allows are an error.
func NewSnappyReader(r io.Reader) io.Reader { return snappy.NewReader(r) }

// tooShort is of what length nothing is compressed: it finds nothing there, for a table of 32 KiB.
const tooShort = 128

// AppendSnappy appends plain in snappy's framing format, without the header: chunks that stand for themselves, so that what
// was compressed once can be sent in many streams. It needs a stack of 64 KiB, but for a few bytes.
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

// appendChunk begins a chunk: its kind, the length of what follows, and the checksum of what that stands for.
func appendChunk(dst []byte, kind byte, size int, plain []byte) []byte {
	sum := crc32.Checksum(plain, crc32.MakeTable(crc32.Castagnoli))
	sum = (sum>>15 | sum<<17) + 0xa282ead8
	size += 4
	return append(dst, kind, byte(size), byte(size>>8), byte(size>>16), byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
}
