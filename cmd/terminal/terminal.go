// Package terminal makes text of objects safe for a terminal.
//
// Invariant: text of an object cannot begin a line, and no control character of it reaches the terminal. JSON does not change.
package terminal

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Plain makes text of objects safe for a terminal. It writes unprintable characters as \u001b and line breaks as \n, so that
// the name of an object cannot write lines, colours or titles. Other text does not change.
func Plain(text string) string {
	if !strings.ContainsFunc(text, unprintable) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, text[i]) // not UTF-8
		case r > 0xffff && unprintable(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		case unprintable(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }

// PlainAll makes every text in v plain, in place. v is a pointer, a slice or a map.
func PlainAll(v any) { plainValue(reflect.ValueOf(v)) }

func plainValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(Plain(v.String()))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			plainValue(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				plainValue(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			plainValue(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			with := reflect.New(v.Type().Elem()).Elem()
			with.Set(v.MapIndex(key))
			plainValue(with)
			v.SetMapIndex(key, with)
		}
	}
}

// Writer is a writer for terminals. It writes control characters that Plain did not replace, except tabs and line ends, as
// \u001b. It does not change JSON.
type Writer struct {
	io.Writer
	mu   sync.Mutex
	half bool // the last byte began a control character of two bytes
}

// Write implements io.Writer; n counts the bytes of p.
func (t *Writer) Write(p []byte) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]byte, 0, len(p)+1)
	for _, c := range p {
		switch {
		case t.half && c >= 0x80 && c < 0xa0: // U+0080 to U+009F
			out = fmt.Appendf(out, `\u%04x`, c)
			t.half = false
			continue
		case t.half:
			out = append(out, 0xc2)
			t.half = false
		}
		switch {
		case c == 0xc2:
			t.half = true
		case c < 0x20 && c != '\n' && c != '\t', c == 0x7f:
			out = fmt.Appendf(out, `\u%04x`, c)
		default:
			out = append(out, c)
		}
	}
	if _, err := t.Writer.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
