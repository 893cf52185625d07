package calc

import "math/bits"

// idSet is a set of handles. Most label values are held by one or two things, a few by all: small sets are a slice,
// large ones a map of 64 neighbours each, as those that are held by many are given out in a row. The zero value is empty.
type idSet struct {
	few  []uint32
	many map[uint32]uint64 // by handle / 64, never zero
	n    int32             // in many
}

const idSetFew = 8

func (s *idSet) len() int { return len(s.few) + int(s.n) }

func (s *idSet) has(id uint32) bool {
	if s.many != nil {
		return s.many[id/64]>>(id%64)&1 != 0
	}
	for _, x := range s.few {
		if x == id {
			return true
		}
	}
	return false
}

func (s *idSet) add(id uint32) {
	switch {
	case s.has(id):
	case s.many != nil:
		s.addMany(id)
	case len(s.few) < idSetFew:
		s.few = append(s.few, id)
	default:
		s.many = map[uint32]uint64{}
		for _, x := range s.few {
			s.addMany(x)
		}
		s.few = nil
		s.addMany(id)
	}
}

func (s *idSet) addMany(id uint32) {
	s.many[id/64] |= 1 << (id % 64)
	s.n++
}

func (s *idSet) remove(id uint32) {
	if s.many != nil {
		if !s.has(id) {
			return
		}
		if s.many[id/64] &^= 1 << (id % 64); s.many[id/64] == 0 {
			delete(s.many, id/64)
		}
		if s.n--; s.n == 0 {
			s.many = nil
		}
		return
	}
	for i, x := range s.few {
		if x == id {
			s.few[i] = s.few[len(s.few)-1]
			s.few = s.few[:len(s.few)-1]
			return
		}
	}
}

// each calls f with every member; f must not change the set.
func (s *idSet) each(f func(uint32)) {
	for _, x := range s.few {
		f(x)
	}
	for block, word := range s.many {
		for ; word != 0; word &= word - 1 {
			f(block*64 + uint32(bits.TrailingZeros64(word)))
		}
	}
}
