package digest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func of(messages [][]byte) Sum {
	s := Empty
	for _, m := range messages {
		s = s.With(m)
	}
	return s
}

// Equal sequences have equal sums; a changed byte, another order, and other limits between messages change the sum.
func TestSumTellsSequencesApart(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		gen := rapid.SliceOfN(rapid.SliceOfN(rapid.ByteRange(0, 1), 0, 3), 0, 4)
		a, b := gen.Draw(r, "a"), gen.Draw(r, "b")
		equal := slices.EqualFunc(a, b, slices.Equal[[]byte])
		if (of(a) == of(b)) != equal {
			r.Errorf("%v and %v", a, b)
		}
	})
}

// The zero value means that no digest is wanted, whatever arrives.
func TestZeroStaysZero(t *testing.T) {
	if s := (Sum{}).With([]byte{1}); s != (Sum{}) {
		t.Error(s)
	}
	if of(nil) == (Sum{}) {
		t.Error("the digest of no messages counts as none")
	}
}
