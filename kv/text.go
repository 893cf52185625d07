package kv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// absent replaces the message in a line whose key has no value.
const absent = "-"

// Format returns a keyed value as one line of text without newline: the key, a space, and the value as compact JSON, or
// "-" for a nil message (a deletion). A key with other than plain visible characters is quoted as in Go. Equal values
// give equal lines. A value that protobuf cannot encode (text that is not UTF-8) shows as "!" and the reason; such a
// line does not parse.
func Format(key string, m proto.Message) string {
	text := absent
	if m != nil {
		b, err := MarshalJSON(m)
		if err == nil {
			text = string(b)
		} else {
			text = "!" + strconv.Quote(err.Error())
		}
	}
	return formatKey(key) + " " + text
}

func formatKey(key string) string {
	if key == "" || strings.IndexFunc(key, func(r rune) bool {
		return r <= ' ' || r == '"' || r >= 0x7f
	}) >= 0 {
		return strconv.Quote(key)
	}
	return key
}

// ParseLine is the inverse of Format. The message is nil if the line says that the key has no value. Errors wrap
// ErrSyntax, ErrNoModel or ErrKeyMismatch.
func ParseLine(line string) (key string, m proto.Message, err error) {
	key, text, err := cutKey(line)
	if err != nil {
		return "", nil, err
	}
	if text == absent {
		if _, _, ok := Lookup(key); !ok {
			return "", nil, fmt.Errorf("parse %q: %w", key, ErrNoModel)
		}
		return key, nil, nil
	}
	m, err = UnmarshalJSON(key, []byte(text))
	if err != nil {
		return "", nil, err
	}
	return key, m, nil
}

// cutKey splits a line at the space after its key.
func cutKey(line string) (key, rest string, err error) {
	if !strings.HasPrefix(line, `"`) {
		key, rest, ok := strings.Cut(line, " ")
		if !ok || key == "" || formatKey(key) != key {
			return "", "", fmt.Errorf("parse line %.80q: %w: want <key> <value>", line, ErrSyntax)
		}
		return key, rest, nil
	}
	quoted, err := strconv.QuotedPrefix(line)
	if err != nil {
		return "", "", fmt.Errorf("parse line %.80q: %w: key not quoted properly", line, ErrSyntax)
	}
	rest, ok := strings.CutPrefix(line[len(quoted):], " ")
	key, err = strconv.Unquote(quoted)
	if !ok || err != nil {
		return "", "", fmt.Errorf("parse line %.80q: %w: want <key> <value>", line, ErrSyntax)
	}
	return key, rest, nil
}

// MarshalJSON returns a message as etcd stores it: protobuf-JSON with lowerCamelCase names, enum values by name, unset
// fields left out. Unlike protojson's, the result is compact and the same in every build. It fails on text that is not
// UTF-8.
func MarshalJSON(m proto.Message) ([]byte, error) {
	b, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Grow(len(b))
	if err := json.Compact(&out, b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// UnmarshalJSON returns the message stored under key. Field names may be in lowerCamelCase or as in the .proto; unknown
// ones are errors. The value must belong under the key. Errors wrap ErrSyntax, ErrNoModel or ErrKeyMismatch.
func UnmarshalJSON(key string, data []byte) (proto.Message, error) {
	model, _, ok := Lookup(key)
	if !ok {
		return nil, fmt.Errorf("parse %q: %w", key, ErrNoModel)
	}
	m := model.New()
	if err := protojson.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("parse %q: %w: %s", key, ErrSyntax, reason(err))
	}
	if err := Check(key, m); err != nil {
		return nil, err
	}
	return m, nil
}

// reason is the text of a protobuf error. Protobuf writes some spaces as non-breaking ones, at random per build; reason
// replaces them by plain ones.
func reason(err error) string {
	return strings.ReplaceAll(err.Error(), "\u00a0", " ")
}
