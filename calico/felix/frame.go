package felix

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"
)

// DefaultLimit is the default of the longest frame: 256 MiB. Felix has no limit; a set of a million networks has about 20
// MB.
const DefaultLimit = 256 << 20

// headerSize is the length of the header before each message: eight little-endian bytes (Felix v3.31,
// felix/dataplane/external).
const headerSize = 8

// Errors of a frame. Reader's errors wrap one of them, or the pipe's error.
var (
	ErrTruncated = errors.New("the stream ends within a frame")
	ErrOversized = errors.New("the frame is longer than the limit")
	ErrGarbage   = errors.New("the frame does not hold the message")
)

// FrameError identifies a wrong frame.
type FrameError struct {
	Frame  uint64 // counted from 0, as Felix counts sequence numbers
	Offset uint64 // of its length, in bytes from the start of the stream
	Length uint64 // as the frame says; 0 if unknown
	Err    error
}

// Error returns a text with frame, offset and length.
func (e *FrameError) Error() string {
	return fmt.Sprintf("frame %d at byte %d, length %d: %v", e.Frame, e.Offset, e.Length, e.Err)
}

// Unwrap returns the cause.
func (e *FrameError) Unwrap() error { return e.Err }

// Reader reads frames: a length, then that many bytes. It is not safe for concurrent use. After an error the stream is
// unusable, except after ErrGarbage, which leaves it at the next frame.
type Reader struct {
	in     *bufio.Reader
	limit  uint64
	frame  uint64 // number of the next frame
	offset uint64 // its offset
	buf    []byte
}

// NewReader returns a reader of frames of at most limit bytes; 0 or less: DefaultLimit.
func NewReader(in io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Reader{in: bufio.NewReaderSize(in, 64<<10), limit: uint64(limit)}
}

// keepBuffer is the largest buffer kept for the next frame, in bytes.
const keepBuffer = 1 << 20

// Next returns the content of the next frame, valid until the next call. At the end of the stream between frames, the error
// is io.EOF itself.
func (r *Reader) Next() ([]byte, error) {
	var header [headerSize]byte
	if n, err := io.ReadFull(r.in, header[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, r.broken(0, err, n, headerSize)
	}
	length := binary.LittleEndian.Uint64(header[:])
	if length > r.limit {
		return nil, r.frameError(length, fmt.Errorf("%w of %d bytes", ErrOversized, r.limit))
	}
	if cap(r.buf) > keepBuffer {
		r.buf = nil
	}
	r.buf = r.buf[:0]
	for want := int(length); len(r.buf) < want; { // at most doubles what has arrived: a length may be false
		have := len(r.buf)
		step := min(want-have, max(have, 64<<10))
		r.buf = slices.Grow(r.buf, step)[:have+step]
		if n, err := io.ReadFull(r.in, r.buf[have:]); err != nil {
			return nil, r.broken(length, err, have+n, want)
		}
	}
	r.frame++
	r.offset += headerSize + length
	return r.buf, nil
}

// broken returns the error of an incomplete frame.
func (r *Reader) broken(length uint64, err error, have, want int) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w, after %d of %d bytes", ErrTruncated, have, want)
	}
	return r.frameError(length, err)
}

func (r *Reader) frameError(length uint64, err error) error {
	return &FrameError{Frame: r.frame, Offset: r.offset, Length: length, Err: err}
}

// Read resets m and reads the next frame into it. Fields that m lacks are kept as unknown fields.
func (r *Reader) Read(m proto.Message) error {
	frame, offset := r.frame, r.offset
	payload, err := r.Next()
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(payload, m); err != nil {
		return &FrameError{frame, offset, uint64(len(payload)), fmt.Errorf("%w %s: %w", ErrGarbage, m.ProtoReflect().Descriptor().FullName(), err)}
	}
	return nil
}

// Writer writes frames, each with one Write, as Felix does. It is not safe for concurrent use. The caller sets sequence
// numbers.
type Writer struct {
	out io.Writer
	buf []byte
}

// NewWriter returns a writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Write writes one message.
func (w *Writer) Write(m proto.Message) error {
	if cap(w.buf) > keepBuffer {
		w.buf = nil
	}
	frame, err := AppendFrame(w.buf[:0], m)
	if err != nil {
		return err
	}
	w.buf = frame
	_, err = w.out.Write(frame)
	return err
}

// AppendFrame appends a message and its length to b.
func AppendFrame(b []byte, m proto.Message) ([]byte, error) {
	at := len(b)
	b = append(b, make([]byte, headerSize)...)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	binary.LittleEndian.PutUint64(b[at:], uint64(len(b)-at-headerSize))
	return b, nil
}
