// Package record turns events into lines of text, and lines back into events.
//
//	checksum number time op key body
//	89abcdef 12 2026-11-27T07:15:02.5Z + "object Pod prod/web-0" {"source":"kube",…}
//
// Invariant: an event that is encoded and decoded is equal, as far as the agent reads it; a damaged line never decodes.
package record

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"
)

// Op says what a line does to the state that the lines before it describe.
type Op byte

// The operations. A state is a map from keys to lines: see Fold.
const (
	Put    Op = '+' // replaces the line of its key
	Remove Op = '-' // removes the line of its key
	Reset  Op = '0' // as Put, and removes the lines of all keys that begin with its key and a space
	Notice Op = '!' // changes no state
)

// Line is one line of a segment.
type Line struct {
	Number uint64    // counts from 1, over all segments of a folder
	At     time.Time // when the agent received the event
	Op     Op
	Key    string
	Body   []byte // JSON
}

// ErrDamaged is the error of a line that is not as it was written.
var ErrDamaged = errors.New("damaged")

// AppendTo appends the text of the line, with its newline.
func (l *Line) AppendTo(b []byte) []byte {
	start := len(b)
	b = append(b, "00000000 "...)
	b = strconv.AppendUint(b, l.Number, 10)
	b = append(b, ' ')
	b = l.At.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, ' ', byte(l.Op), ' ')
	b = strconv.AppendQuote(b, l.Key)
	b = append(append(b, ' '), l.Body...)
	sum := fmt.Appendf(nil, "%08x", crc32.ChecksumIEEE(b[start+9:]))
	copy(b[start:], sum)
	return append(b, '\n')
}

// ParseLine is the inverse of AppendTo, without the newline. The error wraps ErrDamaged.
func ParseLine(text []byte) (Line, error) {
	sum, rest, ok := bytes.Cut(text, []byte(" "))
	if want, err := strconv.ParseUint(string(sum), 16, 32); !ok || err != nil || len(sum) != 8 || uint32(want) != crc32.ChecksumIEEE(rest) {
		return Line{}, fmt.Errorf("%w: the checksum differs", ErrDamaged)
	}
	number, rest, _ := bytes.Cut(rest, []byte(" "))
	at, rest, _ := bytes.Cut(rest, []byte(" "))
	op, rest, ok := bytes.Cut(rest, []byte(" "))
	quoted, err := strconv.QuotedPrefix(string(rest))
	if !ok || err != nil || len(op) != 1 {
		return Line{}, fmt.Errorf("%w: it has no key", ErrDamaged)
	}
	l := Line{Op: Op(op[0])}
	var errNumber, errTime, errKey error
	l.Number, errNumber = strconv.ParseUint(string(number), 10, 64)
	l.At, errTime = time.Parse(time.RFC3339Nano, string(at))
	l.Key, errKey = strconv.Unquote(quoted)
	if err := errors.Join(errNumber, errTime, errKey); err != nil {
		return Line{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	l.Body = bytes.TrimPrefix(rest[len(quoted):], []byte(" "))
	return l, nil
}
