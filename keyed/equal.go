package keyed

import "google.golang.org/protobuf/proto"

// Equal tells whether two messages say the same: same type, same fields set to
// the same values, lists in the same order. Two nil messages are equal.
func Equal(a, b proto.Message) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	// The messages are pointers: most values of a resync are shared.
	return a == b || proto.Equal(a, b)
}

// Hash returns a hash of type and content: equal messages have equal hashes, in
// every process of the same build. Unequal messages may collide, by intent too
// (FNV-1a): compare with Equal before acting on it. It is zero for nil, and
// depends on the type alone if protobuf cannot encode the message.
func Hash(m proto.Message) uint64 {
	if m == nil {
		return 0
	}
	h := fnv(offset64, string(m.ProtoReflect().Descriptor().FullName()))
	var buf [512]byte
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(buf[:0], m)
	if err != nil {
		return h
	}
	return fnv(h, b)
}

const (
	offset64 = 14695981039346656037
	prime64  = 1099511628211
)

// fnv is FNV-1a, here because hash/fnv allocates its state.
func fnv[T string | []byte](h uint64, data T) uint64 {
	for i := range len(data) {
		h = (h ^ uint64(data[i])) * prime64
	}
	return h
}
