package wire

import (
	"io"
	"math/bits"
	"slices"
)

// Encoder writes one stream of messages. It is not safe for concurrent use.
type Encoder struct {
	w             io.Writer
	buf           []byte
	begun         bool
	defined       [kinds]bool
	strings, time bool
}

// NewEncoder returns an encoder for a new stream.
func NewEncoder(w io.Writer) *Encoder { return &Encoder{w: w} }

// Encode writes a message with one Write, and before it the definition of its type if the stream lacks it. Errors are the
// writer's.
func (e *Encoder) Encode(m Message) error {
	e.define(m)
	e.buf = AppendMessage(e.buf, m)
	return e.flushBuffer()
}

// Define writes the definitions of the given messages' types that the stream lacks, so that frames encoded elsewhere may
// follow.
func (e *Encoder) Define(of ...Message) error {
	e.define(of...)
	return e.flushBuffer()
}

func (e *Encoder) define(of ...Message) {
	e.buf = e.buf[:0]
	if !e.begun {
		e.begun = true
		e.buf = AppendDefinitions(e.buf)
	}
	for _, m := range of {
		if k := m.kind(); !e.defined[k] {
			e.defined[k] = true
			e.buf = appendDefinition(e.buf, k, &e.strings, &e.time)
		}
	}
}

func (e *Encoder) flushBuffer() error {
	if len(e.buf) == 0 {
		return nil
	}
	_, err := e.w.Write(e.buf)
	return err
}

// AppendMessage appends a message without definitions.
func AppendMessage(dst []byte, m Message) []byte {
	if kvs, ok := m.(KVs); ok {
		elements := make([]byte, 0, 64*len(kvs.KVs))
		for i := range kvs.KVs {
			elements = AppendKV(elements, &kvs.KVs[i])
		}
		return AppendKVs(dst, len(kvs.KVs), elements)
	}
	return appendFrame[[]byte](dst, m.kind(), appendFields(nil, m))
}

// AppendKVs appends a KVs message made of n elements, each written by AppendKV, without definitions.
func AppendKVs[E ~string | ~[]byte](dst []byte, n int, elements ...E) []byte {
	if n == 0 {
		return appendFrame[E](dst, kindKVs, nil)
	}
	return appendFrame(dst, kindKVs, appendUint([]byte{1}, uint64(n)), elements...)
}

// appendFrame appends the frame of a message whose fields are first, followed by rest.
func appendFrame[E ~string | ~[]byte](dst []byte, k kind, first []byte, rest ...E) []byte {
	size := len(first) + 1
	for _, b := range rest {
		size += len(b)
	}
	name := k.name()
	head := appendInt(make([]byte, 0, 96), int64(idEnvelope))
	head = appendUint(append(head, 1), uint64(len(frozen)+len(name)))
	head = append(append(head, frozen...), name...)
	head = appendUint(appendInt(head, int64(k.typeID())), uint64(size))
	dst = slices.Grow(dst, len(head)+size+10)
	dst = appendUint(dst, uint64(len(head)+size+1))
	dst = append(append(dst, head...), first...)
	for _, b := range rest {
		dst = append(dst, b...)
	}
	return append(dst, 0, 0) // ends of the message and of the envelope
}

// AppendKV appends a KV as one element of a KVs message.
func AppendKV(dst []byte, kv *KV) []byte {
	f := fieldWriter{b: dst, last: -1}
	f.textField(0, kv.Key)
	if len(kv.Value) > 0 {
		f.startField(1)
		f.b = append(appendUint(f.b, uint64(len(kv.Value))), kv.Value...)
	}
	if kv.Revision != "" { // an interface: name of the type, number, length, and 0 before a value that is not a struct
		f.startField(2)
		n := uint64(len(kv.Revision))
		f.b = appendInt(appendText(f.b, "string"), int64(idString))
		f.b = append(appendUint(f.b, 1+uint64(uintLen(n))+n), 0)
		f.b = appendText(f.b, kv.Revision)
	}
	f.textField(3, kv.V3ResourceVersion)
	if kv.TTL != 0 {
		f.startField(4)
		f.b = appendInt(f.b, int64(kv.TTL))
	}
	f.uint(5, uint64(kv.UpdateType))
	return append(f.b, 0)
}

// appendFields appends the fields of every message but KVs, without the end marker.
func appendFields(dst []byte, m Message) []byte {
	f := fieldWriter{b: dst, last: -1}
	switch m := m.(type) {
	case ClientHello:
		f.textField(0, m.Hostname)
		f.textField(1, m.Info)
		f.textField(2, m.Version)
		f.textField(3, string(m.SyncerType))
		f.bool(4, m.SupportsDecoderRestart)
		if n := len(m.SupportedCompressionAlgorithms); n > 0 {
			f.startField(5)
			f.b = appendUint(f.b, uint64(n))
			for _, s := range m.SupportedCompressionAlgorithms {
				f.b = appendText(f.b, s)
			}
		}
		f.uint(6, m.ClientConnID)
		f.bool(7, m.SupportsModernPolicyKeys)
	case ServerHello:
		f.textField(0, m.Version)
		f.textField(1, string(m.SyncerType))
		f.bool(2, m.SupportsNodeResourceUpdates)
		f.uint(3, m.ServerConnID)
	case DecoderRestart:
		f.textField(0, m.Message)
		f.textField(1, m.CompressionAlgorithm)
	case SyncStatus:
		f.uint(0, uint64(m.SyncStatus))
	case Ping:
		f.time(0, m.Timestamp)
	case Pong:
		f.time(0, m.PingTimestamp)
		f.time(1, m.PongTimestamp)
	}
	return f.b
}

// fieldWriter writes the non-zero fields of a struct, each after its distance from the previous one.
type fieldWriter struct {
	b    []byte
	last int
}

func (f *fieldWriter) startField(i int) {
	f.b = appendUint(f.b, uint64(i-f.last))
	f.last = i
}

func (f *fieldWriter) textField(i int, s string) {
	if s != "" {
		f.startField(i)
		f.b = appendText(f.b, s)
	}
}

func (f *fieldWriter) uint(i int, v uint64) {
	if v != 0 {
		f.startField(i)
		f.b = appendUint(f.b, v)
	}
}

func (f *fieldWriter) bool(i int, v bool) {
	if v {
		f.uint(i, 1)
	}
}

// time writes a time in its own binary encoding. It omits times that the encoding cannot express (no zone has such an
// offset).
func (f *fieldWriter) time(i int, t interface {
	IsZero() bool
	MarshalBinary() ([]byte, error)
},
) {
	if t.IsZero() {
		return
	}
	if b, err := t.MarshalBinary(); err == nil {
		f.startField(i)
		f.b = append(appendUint(f.b, uint64(len(b))), b...)
	}
}

func appendText(b []byte, s string) []byte { return append(appendUint(b, uint64(len(s))), s...) }

// appendInt appends a signed number: the sign is the lowest bit.
func appendInt(b []byte, v int64) []byte {
	if v < 0 {
		return appendUint(b, uint64(^v<<1)|1)
	}
	return appendUint(b, uint64(v<<1))
}

// appendUint appends a number: below 128 the byte itself, else the negated count of its bytes and these, highest first.
func appendUint(b []byte, v uint64) []byte {
	if v < 0x80 {
		return append(b, byte(v))
	}
	n := (bits.Len64(v) + 7) / 8
	b = append(b, byte(-n))
	for n--; n >= 0; n-- {
		b = append(b, byte(v>>(8*n)))
	}
	return b
}

// uintLen returns how many bytes appendUint appends.
func uintLen(v uint64) int {
	if v < 0x80 {
		return 1
	}
	return 1 + (bits.Len64(v)+7)/8
}
