package wire

import (
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
)

// SnappyHeader begins a stream of snappy's framing format.
const SnappyHeader = "\xff\x06\x00\x00sNaPpY"

// chunk is how many bytes one chunk of the framing format may hold.
const chunk = 64 << 10

// NewSnappyReader reads a stream of snappy's framing format. Chunks that are longer than the format allows are an error.
func NewSnappyReader(r io.Reader) io.Reader { return snappy.NewReader(r) }

// AppendSnappy appends plain in snappy's framing format, without the header: chunks that stand for themselves, so that what
// was compressed once can be sent in many streams. A thorough search for matches pays where many read the result.
func AppendSnappy(dst, plain []byte, thorough bool) []byte {
	compress := s2.EncodeSnappy
	if thorough {
		compress = s2.EncodeSnappyBetter
	}
	scratch := make([]byte, s2.MaxEncodedLen(min(len(plain), chunk)))
	table := crc32.MakeTable(crc32.Castagnoli)
	parts := (len(plain) + chunk - 1) / chunk
	for ; parts > 0; parts-- {
		n := (len(plain) + parts - 1) / parts // chunks of about one size: no small last one that finds no matches
		part := plain[:n]
		plain = plain[n:]
		sum := crc32.Checksum(part, table)
		sum = (sum>>15 | sum<<17) + 0xa282ead8
		kind, body := byte(0), compress(scratch, part)
		if len(body) >= n-n/8 {
			kind, body = 1, part
		}
		size := len(body) + 4
		dst = append(dst, kind, byte(size), byte(size>>8), byte(size>>16),
			byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
		dst = append(dst, body...)
	}
	return dst
}
