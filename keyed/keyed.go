// Package keyed turns protobuf values into keys and lines of text, and back:
// the currency between the controller and vppagent.
//
// A key is what ligato v3 stores the value under in etcd, without the agent's
// own prefix: config/vpp/nat/v2/dnat44/default/web. Invariant: the key depends
// on nothing but the value, and a key has at most one model.
package keyed

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
)

// Sentinel errors of this package; wrapped with the key they are about.
var (
	// ErrNoModel: no model has this key, or this type of message.
	ErrNoModel = errors.New("no model")
	// ErrKeyMismatch: the key is not the one the message has.
	ErrKeyMismatch = errors.New("key does not belong to the value")
	// ErrKeyTooLong: the key is longer than MaxKey.
	ErrKeyTooLong = errors.New("key is too long")
	// ErrSyntax: text that is neither a line of Format nor JSON of the message.
	ErrSyntax = errors.New("syntax error")
)

// Values is a set of keyed values: key → message. The zero value can be read;
// make one to Put into it.
type Values map[string]proto.Message

// Put adds m under its key, in place of a value of the same key. It panics on
// a message without a model: only our own code chooses what is put.
func (v Values) Put(m proto.Message) {
	key := Key(m)
	if key == "" {
		panic(fmt.Sprintf("keyed: %T has no model", m))
	}
	v[key] = m
}

// Keys returns all keys, sorted.
func (v Values) Keys() []string {
	return slices.Sorted(maps.Keys(v))
}

// MaxKey is how many bytes a key may have. Errors, statuses and logs name keys.
const MaxKey = 2048

// Shown is a key as messages have it: cut where it is too long.
func Shown(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	return strings.ToValidUTF8(key[:64], "") + "…"
}

// Check tells whether m may be stored under key: nil, or an error that wraps
// ErrNoModel, ErrKeyMismatch or ErrKeyTooLong, and is short. What comes from outside is checked, because a
// name may lead out of its model's prefix (label "../nat44-global").
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
		return fmt.Errorf("check %q: %w: it has %q", key, ErrKeyMismatch, Shown(want))
	}
	model, _, ok := Lookup(key)
	if !ok {
		return fmt.Errorf("check %q: %w", key, ErrNoModel)
	}
	if model.Proto != string(m.ProtoReflect().Descriptor().FullName()) {
		return fmt.Errorf("check %q: %w: it is for %s", key, ErrKeyMismatch, model.Proto)
	}
	return nil
}
