package labelindex

import "slices"

// sharing inserts a number into sorted lists, or removes it, without changing them. Lists that were the same slice are
// the same slice afterwards: nearly all kinds of a cluster match the same few selectors. It serves one number and one
// direction.
type sharing struct {
	last    edit
	earlier map[*uint32][]uint32 // earlier edits, by the first number of the list
}

type edit struct {
	from *uint32 // address of the first number; nil for an empty list
	to   []uint32
	done bool
}

// insert returns the list with a number that it does not have.
func (x *sharing) insert(list []uint32, id uint32) []uint32 {
	if to, ok := x.known(list); ok {
		return to
	}
	i, _ := slices.BinarySearch(list, id)
	to := make([]uint32, len(list)+1)
	copy(to, list[:i])
	to[i] = id
	copy(to[i+1:], list[i:])
	x.learn(list, to)
	return to
}

// removeNumber returns the list without a number; it reports false if the list does not have the number.
func (x *sharing) removeNumber(list []uint32, id uint32) ([]uint32, bool) {
	i, ok := slices.BinarySearch(list, id)
	if !ok {
		return list, false
	}
	if to, ok := x.known(list); ok {
		return to, true
	}
	var to []uint32
	if len(list) > 1 {
		to = make([]uint32, len(list)-1)
		copy(to, list[:i])
		copy(to[i:], list[i+1:])
	}
	x.learn(list, to)
	return to, true
}

func head(list []uint32) *uint32 {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func (x *sharing) known(list []uint32) (to []uint32, ok bool) {
	from := head(list)
	if x.last.done && x.last.from == from {
		return x.last.to, true
	}
	to, ok = x.earlier[from]
	return to, ok
}

func (x *sharing) learn(list, to []uint32) {
	if x.last.done {
		if x.earlier == nil {
			x.earlier = map[*uint32][]uint32{}
		}
		x.earlier[x.last.from] = x.last.to
	}
	x.last = edit{head(list), to, true}
}
