package adapter

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// Pick returns n endpoints of a set that has more, chosen by rendezvous hashing: a change of the set moves as few as possible, and nodes choose apart
// from each other, so that together they use all. The order stays.
func Pick(set []Endpoint, n int, node string) []Endpoint {
	type scored struct {
		Endpoint
		score uint64
	}
	ranking := make([]scored, len(set))
	for i, b := range set {
		ranking[i] = scored{b, score(node, b.At)}
	}
	slices.SortFunc(ranking, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), a.Endpoint.Compare(b.Endpoint))
	})
	out := make([]Endpoint, n)
	for i, r := range ranking[:n] {
		out[i] = r.Endpoint
	}
	slices.SortFunc(out, Endpoint.Compare)
	return out
}

// score is FNV-1a of node, address and port, its bits mixed by the finalizer of SplitMix64: FNV alone leaves the high
// bits of similar inputs similar.
func score(node string, at netip.AddrPort) uint64 {
	h := uint64(14695981039346656037)
	mix := func(b byte) { h = (h ^ uint64(b)) * 1099511628211 }
	for i := range len(node) {
		mix(node[i])
	}
	for _, b := range binary.BigEndian.AppendUint16(at.Addr().AsSlice(), at.Port()) {
		mix(b)
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
