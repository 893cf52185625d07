// Package kv turns protobuf values into keys and lines of text, and back. Keyed values are all that the controller
// sends to vppagent.
//
// A key is the one under which ligato v3 stores the value in etcd, without the agent's own prefix:
// config/vpp/nat/v2/dnat44/default/web. Invariant: the key depends only on the value, and a key has at most one model.
package kv

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
)

// Sentinel errors of this package. They are wrapped with the key.
var (
	// ErrNoModel: no model has this key, or this type of message.
	ErrNoModel = errors.New("no model")
	// ErrKeyMismatch: the message has another key.
	ErrKeyMismatch = errors.New("key does not belong to the value")
	// ErrKeyTooLong: the key is longer than MaxKey.
	ErrKeyTooLong = errors.New("key is too long")
	// ErrSyntax: the text is neither a line of Format nor JSON of the message.
	ErrSyntax = errors.New("syntax error")
)

// Values is a set of keyed values: key → message. The zero value can be read but not written: make one before Put.
type Values map[string]proto.Message

// Put adds m under its key and replaces a value with the same key. It panics on a message without a model: only our own
// code calls it.
func (v Values) Put(m proto.Message) {
	key := Key(m)
	if key == "" {
		panic(fmt.Sprintf("kv: %T has no model", m))
	}
	v[key] = m
}

// Keys returns all keys, sorted.
func (v Values) Keys() []string {
	return slices.Sorted(maps.Keys(v))
}

// MaxKey is the most bytes a key may have. Errors, statuses and logs contain keys.
const MaxKey = 2048

// Shown is a key as messages show it: cut if it is too long.
func Shown(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	return strings.ToValidUTF8(key[:64], "") + "…"
}

// Check reports whether m may be stored under key. Its error wraps ErrNoModel, ErrKeyMismatch or ErrKeyTooLong and is
// short. Values from outside must be checked, because a name may lead out of its model's prefix (label
// "../nat44-global").
func Check(key string, m proto.Message) error {
	if len(key) > MaxKey {
		return fmt.Errorf("check %q: %w: %d bytes, at most %d", Shown(key), ErrKeyTooLong, len(key), MaxKey)
	}
	if m == nil {
		return fmt.Errorf("check %q: %w: nil value", key, ErrNoModel)
	}
	want := Key(m)
	if want == "" {
		return fmt.Errorf("check %q: %w: type %s", key, ErrNoModel, m.ProtoReflect().Descriptor().FullName())
	}
	if want != key {
		return fmt.Errorf("check %q: %w: its key is %q", key, ErrKeyMismatch, Shown(want))
	}
	model, _, ok := Lookup(key)
	if !ok {
		return fmt.Errorf("check %q: %w", key, ErrNoModel)
	}
	if model.Proto != string(m.ProtoReflect().Descriptor().FullName()) {
		return fmt.Errorf("check %q: %w: the key is for %s", key, ErrKeyMismatch, model.Proto)
	}
	return nil
}
