package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// ErrMalformed is wrapped by Decode's errors for bytes that are not messages.
var ErrMalformed = errors.New("malformed message")

// ErrTooLong is wrapped by Decode's error for a message longer than the decoder's limit.
var ErrTooLong = errors.New("message too long")

// Decoder reads one stream of messages. It is not safe for concurrent use.
type Decoder struct {
	r       byteReader
	limit   int
	buf     []byte
	in      input
	types   map[typeID]*definition
	defined int // bytes of definitions so far
	plans   map[typeID]plan
}

type byteReader interface {
	io.Reader
	io.ByteReader
}

// maxDefinitions bounds the bytes of all definitions in a stream; they are also bounded by the longest message. The decoder
// keeps definitions for as long as the stream.
const maxDefinitions = 64 << 10

// NewDecoder returns a decoder for messages of at most limit bytes. It reads ahead unless r is an io.ByteReader.
func NewDecoder(r io.Reader, limit int) *Decoder {
	br, ok := r.(byteReader)
	if !ok {
		br = bufio.NewReader(r)
	}
	return &Decoder{r: br, limit: limit, types: map[typeID]*definition{}, plans: map[typeID]plan{}}
}

// Decode returns the next message. Its error is io.EOF at the end of the stream, io.ErrUnexpectedEOF within a message, and
// wraps ErrMalformed or ErrTooLong for bytes that it cannot decode. After an error the stream is unusable.
func (d *Decoder) Decode() (Message, error) {
	d.in = input{}
	if cap(d.buf) > 1<<16 {
		d.buf = nil // an idle connection must not keep the buffer of a long message
	}
	id, err := d.typeSequence()
	if err != nil {
		return nil, err
	}
	m, err := d.envelope(id)
	if err != nil {
		return nil, malformed(err)
	}
	return m, nil
}

func malformed(err error) error {
	if errors.Is(err, ErrMalformed) || errors.Is(err, ErrTooLong) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	var short inputError
	if errors.As(err, &short) {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return err
}

// inputError is an error in a message's bytes.
type inputError string

func (e inputError) Error() string { return string(e) }

const (
	errShort   = inputError("ends early")
	errNumber  = inputError("number out of range")
	errType    = inputError("undefined or unexpected type")
	errNesting = inputError("nested too deep")
)

// typeSequence reads the type number of the next value, and keeps the definitions before it. At the end of a frame it reads
// the next one.
func (d *Decoder) typeSequence() (typeID, error) {
	for first := true; ; first = false {
		if d.in.empty() {
			if err := d.nextFrame(first); err != nil {
				return 0, err
			}
		}
		before := len(d.in.b)
		id, err := d.in.int()
		if err != nil {
			return 0, malformed(err)
		}
		if id >= 0 {
			return typeID(id), nil
		}
		if err := d.define(typeID(-id)); err != nil {
			return 0, malformed(err)
		}
		if d.defined += before - len(d.in.b); d.defined > min(maxDefinitions, d.limit) {
			return 0, fmt.Errorf("%w: more than %d bytes of definitions", ErrMalformed, min(maxDefinitions, d.limit))
		}
		if !d.in.empty() { // a definition inside an interface: the length of the rest
			if _, err := d.in.uint(); err != nil {
				return 0, malformed(err)
			}
		}
	}
}

// nextFrame reads a frame into the buffer: its length, then as many bytes as arrive.
func (d *Decoder) nextFrame(first bool) error {
	n, err := d.frameLength()
	switch {
	case err == io.EOF && !first:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("%w: empty frame", ErrMalformed)
	case n > uint64(d.limit):
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, n, d.limit)
	}
	const step = 64 << 10 // grow in steps: a false length costs its sender nothing
	d.buf = d.buf[:0]
	for len(d.buf) < int(n) {
		at := len(d.buf)
		more := min(int(n)-at, max(step, at))
		if cap(d.buf) < at+more {
			grown := make([]byte, at, at+more)
			copy(grown, d.buf)
			d.buf = grown
		}
		d.buf = d.buf[:at+more]
		if _, err := io.ReadFull(d.r, d.buf[at:]); err != nil {
			if err == io.EOF {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	d.in.b = d.buf
	return nil
}

func (d *Decoder) frameLength() (uint64, error) {
	b, err := d.r.ReadByte()
	if err != nil {
		return 0, err
	}
	if b < 0x80 {
		return uint64(b), nil
	}
	n := -int(int8(b))
	if n > 8 {
		return 0, fmt.Errorf("%w: length of %d bytes", ErrMalformed, n)
	}
	var v uint64
	for ; n > 0; n-- {
		b, err := d.r.ReadByte()
		if err == io.EOF {
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		v = v<<8 | uint64(b)
	}
	return v, nil
}

// input is the rest of a frame.
type input struct{ b []byte }

func (in *input) empty() bool { return len(in.b) == 0 }

func (in *input) uint() (uint64, error) {
	if len(in.b) == 0 {
		return 0, errShort
	}
	first := in.b[0]
	if first < 0x80 {
		in.b = in.b[1:]
		return uint64(first), nil
	}
	n := -int(int8(first))
	if n > 8 {
		return 0, errNumber
	}
	if len(in.b) < 1+n {
		return 0, errShort
	}
	var v uint64
	for _, b := range in.b[1 : 1+n] {
		v = v<<8 | uint64(b)
	}
	in.b = in.b[1+n:]
	return v, nil
}

func (in *input) int() (int64, error) {
	u, err := in.uint()
	if u&1 != 0 {
		return ^int64(u >> 1), err
	}
	return int64(u >> 1), err
}

// elementCount reads a number of elements, each of which has at least one byte.
func (in *input) elementCount() (int, error) {
	n, err := in.uint()
	if err == nil && n > uint64(len(in.b)) {
		return 0, errShort
	}
	return int(n), err
}

// bytes reads a length and that many bytes, which alias the buffer.
func (in *input) bytes() ([]byte, error) {
	n, err := in.elementCount()
	if err != nil {
		return nil, err
	}
	b := in.b[:n]
	in.b = in.b[n:]
	return b, nil
}
