package adapter

import (
	"net/netip"
	"slices"
)

// Pick returns n endpoints of a sorted set that has more, chosen by rendezvous hashing: a change of the set moves as few as possible, and nodes choose
// apart from each other, so that together they use all. The order stays.
func Pick(set []Endpoint, n int, node string) []Endpoint {
	scores := make([]uint64, len(set))
	from := hashOf(node)
	for i, e := range set {
		scores[i] = score(from, e.At)
	}
	least, ties := nthLargest(scores, n)
	out := make([]Endpoint, 0, n)
	for i, e := range set {
		switch {
		case scores[i] < least:
			continue
		case scores[i] == least:
			if ties == 0 {
				continue
			}
			ties--
		}
		out = append(out, e)
	}
	return out
}

// nthLargest returns the n-th largest of scores, and how many of those equal to it are among the n largest. Scores are spread evenly, so a count by
// their highest byte leaves few to sort.
func nthLargest(scores []uint64, n int) (nth uint64, ties int) {
	var counts [256]int
	for _, s := range scores {
		counts[s>>56]++
	}
	top := len(counts) - 1
	for ; n > counts[top]; top-- {
		n -= counts[top]
	}
	rest := make([]uint64, 0, counts[top])
	for _, s := range scores {
		if s>>56 == uint64(top) {
			rest = append(rest, s)
		}
	}
	slices.Sort(rest)
	nth = rest[len(rest)-n]
	after, _ := slices.BinarySearch(rest, nth+1)
	if nth+1 == 0 {
		after = len(rest)
	}
	return nth, n - (len(rest) - after)
}

const prime = 1099511628211 // of FNV-1a

func hashOf(node string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(node) {
		h = (h ^ uint64(node[i])) * prime
	}
	return h
}

// score is FNV-1a of node, address and port, its bits mixed by the finalizer of SplitMix64: FNV alone leaves the high
// bits of similar inputs similar. From is the hash of the node.
func score(from uint64, at netip.AddrPort) uint64 {
	h := from
	a := at.Addr().As16()
	bytes := a[:]
	if at.Addr().Is4() {
		bytes = a[12:]
	}
	for _, b := range bytes {
		h = (h ^ uint64(b)) * prime
	}
	h = (h ^ uint64(at.Port()>>8)) * prime
	h = (h ^ uint64(at.Port()&0xff)) * prime
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
