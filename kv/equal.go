package kv

import "google.golang.org/protobuf/proto"

// Equal reports whether two messages are the same: same type, same fields set to the same values, lists in the same
// order. Two nil messages are equal.
func Equal(a, b proto.Message) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	// Compare pointers first: most values of a resync are shared.
	return a == b || proto.Equal(a, b)
}
