// Package digest turns the messages of an answer of VPP into a number of 128 bits, so that an agent that asks again learns whether the answer is the
// same without decoding or keeping it.
//
// Invariant: within a process, equal sequences of messages have equal sums. Different ones have different sums, but for 1 pair in 2^128: the hash has a
// random key for each process, so nobody can construct such a pair.
package digest

import "hash/maphash"

// Sum is the digest of a sequence of messages. The zero value: none was calculated.
type Sum struct{ a, b uint64 }

// Empty is the digest of no messages.
var Empty = Sum{1, 1}

// Two keys, because one hash has 64 bits.
var keyA, keyB = maphash.MakeSeed(), maphash.MakeSeed()

// The factors are odd, so that a multiplication loses nothing. They differ, so that both halves are independent.
const factorA, factorB = 0x9e3779b97f4a7c15, 0xd1342543de82ef95

// With returns the digest of the sequence with a further message. The zero value stays zero.
func (s Sum) With(message []byte) Sum {
	if s == (Sum{}) {
		return s
	}
	next := Sum{s.a*factorA + maphash.Bytes(keyA, message), s.b*factorB + maphash.Bytes(keyB, message)}
	if next == (Sum{}) {
		return Empty
	}
	return next
}
