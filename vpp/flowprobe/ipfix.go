package flowprobe

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Record is what VPP counted for one direction of a connection since its last record.
type Record struct {
	Src, Dst         netip.Addr
	Protocol         uint8
	SrcPort, DstPort uint16 // of TCP and UDP; otherwise 0
	Flags            uint16 // of TCP: those of all packets
	Packets, Bytes   uint64 // of IP packets
	Start            uint64 // of the direction, in VPP's clock: only its order has a meaning
}

// Numbers of IPFIX (RFC 7011, 7012) that flowprobe uses.
const (
	version, messageHeader, setHeader    = 10, 16, 4
	templates, firstData, notIP          = 2, 256, 0
	octets, packets, protocol, flags     = 1, 2, 4, 6
	srcPort, src4, dstPort, dst4         = 7, 8, 11, 12
	src6, dst6, flowStart                = 27, 28, 156
	enterpriseBit                        = 0x8000
	variableLength, mostFields, mostKept = 65535, 64, 64
)

// ErrMessage means that a datagram is no message of IPFIX, or ends within a part of it.
var ErrMessage = errors.New("not a complete message of IPFIX")

// Reader reads messages of one exporter. The zero Reader knows no template: it skips records until VPP has sent theirs.
type Reader struct {
	templates map[uint16][]field
	next      uint32 // number of the next message with data
	started   bool
	// Lost is the number of messages that did not arrive, by their numbers. Unknown is the number of parts without a known template.
	Lost, Unknown uint64
}

type field struct{ kind, length uint16 }

// Read returns the records of a message.
func (r *Reader) Read(b []byte) ([]Record, error) {
	if len(b) < messageHeader || binary.BigEndian.Uint16(b) != version || int(binary.BigEndian.Uint16(b[2:])) != len(b) {
		return nil, ErrMessage
	}
	number, data := binary.BigEndian.Uint32(b[8:]), false
	var out []Record
	for b = b[messageHeader:]; len(b) > 0; {
		if len(b) < setHeader {
			return out, ErrMessage
		}
		id, length := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if length < setHeader || length > len(b) {
			return out, ErrMessage
		}
		switch body := b[setHeader:length]; {
		case id == templates:
			if err := r.learnTemplates(body); err != nil {
				return out, err
			}
		case id >= firstData:
			data = true
			out = r.records(out, id, body)
		case id == notIP: // packets that are not of IP: flowprobe has no template for them, and numbers the message
			data = true
		}
		b = b[length:]
	}
	if data {
		r.countLost(number)
	}
	return out, nil
}

// countLost counts the messages between the last one with data and this one. VPP numbers those alone.
func (r *Reader) countLost(number uint32) {
	if ahead := number - r.next; r.started && ahead < 1<<31 {
		r.Lost += uint64(ahead)
	}
	r.next, r.started = number+1, true
}

// learnTemplates keeps the templates of a set.
func (r *Reader) learnTemplates(b []byte) error {
	for len(b) >= setHeader {
		id, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if b = b[setHeader:]; n > mostFields || len(b) < 4*n {
			return ErrMessage
		}
		fields := make([]field, 0, n)
		for i := range n {
			f := field{binary.BigEndian.Uint16(b[4*i:]), binary.BigEndian.Uint16(b[4*i+2:])}
			if f.kind&enterpriseBit != 0 || f.length == variableLength {
				return nil // not flowprobe's
			}
			fields = append(fields, f)
		}
		if r.templates == nil {
			r.templates = map[uint16][]field{}
		}
		if _, known := r.templates[id]; known || len(r.templates) < mostKept {
			r.templates[id] = fields
		}
		b = b[4*n:]
	}
	return nil
}

func (r *Reader) records(out []Record, id uint16, b []byte) []Record {
	fields, size := r.templates[id], 0
	for _, f := range fields {
		size += int(f.length)
	}
	if size == 0 {
		r.Unknown++
		return out
	}
	for ; len(b) >= size; b = b[size:] {
		var one Record
		at := b
		for _, f := range fields {
			one.setField(f.kind, at[:f.length])
			at = at[f.length:]
		}
		if one.Src.IsValid() && one.Dst.IsValid() {
			out = append(out, one)
		}
	}
	return out
}

func (r *Record) setField(kind uint16, b []byte) {
	switch kind {
	case src4, src6:
		r.Src, _ = netip.AddrFromSlice(b)
	case dst4, dst6:
		r.Dst, _ = netip.AddrFromSlice(b)
	case protocol:
		r.Protocol = uint8(readNumber(b))
	case srcPort:
		r.SrcPort = uint16(readNumber(b))
	case dstPort:
		r.DstPort = uint16(readNumber(b))
	case flags:
		r.Flags = uint16(readNumber(b))
	case packets:
		r.Packets = readNumber(b)
	case octets:
		r.Bytes = readNumber(b)
	case flowStart:
		r.Start = readNumber(b)
	}
}

// readNumber reads up to 8 bytes.
func readNumber(b []byte) (n uint64) {
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}
