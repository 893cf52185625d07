package event

import "strings"

// StatusLists gathers the statuses of a transaction that is observed in portions. Each list is sorted and less than half as long
// as the one before. So joins cost little, and mostly run while VPP works.
type StatusLists [][]ValueStatus

// AddList takes a sorted list.
func (t *StatusLists) AddList(list []ValueStatus) {
	*t = append(*t, list)
	for n := len(*t); n > 1 && 2*len((*t)[n-1]) > len((*t)[n-2]); n = len(*t) {
		t.mergeLast()
	}
}

// MergeAll returns all statuses as one sorted list.
func (t *StatusLists) MergeAll() []ValueStatus {
	for len(*t) > 1 {
		t.mergeLast()
	}
	return (*t)[0]
}

// mergeLast merges the last two lists. For a value in both, the later status counts.
func (t *StatusLists) mergeLast() {
	n := len(*t)
	before, now := (*t)[n-2], (*t)[n-1]
	out := make([]ValueStatus, 0, len(before)+len(now))
	for len(before) > 0 && len(now) > 0 {
		switch c := strings.Compare(before[0].Key, now[0].Key); {
		case c < 0:
			out, before = append(out, before[0]), before[1:]
		case c == 0:
			before = before[1:]
		default:
			out, now = append(out, now[0]), now[1:]
		}
	}
	out = append(append(out, before...), now...)
	*t = append((*t)[:n-2], out)
}
