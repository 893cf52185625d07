package labelindex

import (
	"math/bits"
	"slices"
)

// idSet is a set of handles. Most label values are held by one or two items, a few by all. So a small set is a list,
// and a large one has a word for each block of 64 consecutive numbers, because items that share a label often have
// consecutive numbers. The zero value is empty.
type idSet struct {
	few  []uint32
	many *blocks
}

// blocks is a large set: the sorted numbers of its blocks, and a word for each, which is never zero.
type blocks struct {
	numbers []uint32
	words   []uint64
	n       int
}

const idSetFew = 8

func (s *idSet) len() int {
	if s.many != nil {
		return s.many.n
	}
	return len(s.few)
}

func (s *idSet) addID(id uint32) {
	switch {
	case s.many != nil:
		s.many.addID(id)
	case slices.Contains(s.few, id):
	case len(s.few) < idSetFew:
		s.few = append(s.few, id)
	default:
		s.many = &blocks{}
		for _, x := range s.few {
			s.many.addID(x)
		}
		s.few = nil
		s.many.addID(id)
	}
}

func (s *idSet) removeID(id uint32) {
	if b := s.many; b != nil {
		if b.removeID(id); b.n == 0 {
			s.many = nil
		}
		return
	}
	if i := slices.Index(s.few, id); i >= 0 {
		s.few[i] = s.few[len(s.few)-1]
		s.few = s.few[:len(s.few)-1]
	}
}

// each calls f with every member; a large set is in order. f must not change the set.
func (s *idSet) each(f func(uint32)) {
	for _, x := range s.few {
		f(x)
	}
	if s.many == nil {
		return
	}
	for i, word := range s.many.words {
		for base := s.many.numbers[i] * 64; word != 0; word &= word - 1 {
			f(base + uint32(bits.TrailingZeros64(word)))
		}
	}
}

// findBlock returns the position of the block of id, or where to insert it. It tries the last block first: most handles are
// new.
func (b *blocks) findBlock(id uint32) (place int, ok bool) {
	block := id / 64
	if last := len(b.numbers) - 1; last < 0 || b.numbers[last] < block {
		return last + 1, false
	}
	return slices.BinarySearch(b.numbers, block)
}

func (b *blocks) addID(id uint32) {
	i, ok := b.findBlock(id)
	if !ok {
		b.numbers, b.words = slices.Insert(b.numbers, i, id/64), slices.Insert(b.words, i, 0)
	}
	if bit := uint64(1) << (id % 64); b.words[i]&bit == 0 {
		b.words[i] |= bit
		b.n++
	}
}

func (b *blocks) removeID(id uint32) {
	i, ok := b.findBlock(id)
	bit := uint64(1) << (id % 64)
	if !ok || b.words[i]&bit == 0 {
		return
	}
	b.n--
	if b.words[i] &^= bit; b.words[i] == 0 {
		b.numbers, b.words = slices.Delete(b.numbers, i, i+1), slices.Delete(b.words, i, i+1)
	}
}
