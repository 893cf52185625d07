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

// AppendSnappy appends plain in snappy's framing format, without the header: chunks that stand for themselves, so that what
// was compressed once can be sent in many streams.
func AppendSnappy(dst, plain []byte) []byte {
	scratch := make([]byte, snappy.MaxEncodedLen(min(len(plain), chunk)))
	table := crc32.MakeTable(crc32.Castagnoli)
	for len(plain) > 0 {
		part := plain[:min(len(plain), chunk)]
		plain = plain[len(part):]
		sum := crc32.Checksum(part, table)
		sum = (sum>>15 | sum<<17) + 0xa282ead8
		kind, body := byte(0), snappy.Encode(scratch, part)
		if len(body) >= len(part)-len(part)/8 {
			kind, body = 1, part
		}
		size := len(body) + 4
		dst = append(dst, kind, byte(size), byte(size>>8), byte(size>>16),
			byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
		dst = append(dst, body...)
	}
	return dst
}
