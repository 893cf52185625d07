package adapter

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// pickBySorting is Pick as its comment defines it.
func pickBySorting(set []Endpoint, n int, node string) []Endpoint {
	points := map[netip.AddrPort]uint64{}
	for _, e := range set {
		h := uint64(14695981039346656037)
		for _, b := range binary.BigEndian.AppendUint16(append([]byte(node), e.At.Addr().AsSlice()...), e.At.Port()) {
			h = (h ^ uint64(b)) * 1099511628211
		}
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		points[e.At] = h ^ h>>31
	}
	out := slices.Clone(set)
	slices.SortFunc(out, func(a, b Endpoint) int { return cmp.Or(cmp.Compare(points[b.At], points[a.At]), a.Compare(b)) })
	out = out[:n]
	slices.SortFunc(out, Endpoint.Compare)
	return out
}

// The choice must never change: nodes that run different versions would otherwise move the sessions of half of all endpoints.
func TestPick(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for range 300 {
		node := fmt.Sprint("node-", r.IntN(9))
		var set []Endpoint
		for i := range 2 + r.IntN(600) {
			a := netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(i >> 8), byte(i)})
			if r.IntN(3) == 0 {
				b := a.As16()
				b[0], b[10], b[11] = 0xfd, 0, 0
				a = netip.AddrFrom16(b)
			}
			e := Endpoint{netip.AddrPortFrom(a, uint16(r.IntN(1<<16))), r.IntN(2) == 0}
			set = append(set, e)
			if r.IntN(4) == 0 { // with the same score
				set = append(set, Endpoint{e.At, !e.Local})
			}
		}
		slices.SortFunc(set, Endpoint.Compare)
		n := 1 + r.IntN(len(set)-1)
		if got, want := Pick(set, n, node), pickBySorting(set, n, node); !slices.Equal(got, want) {
			t.Fatalf("%d of %d on %s:\n%v, want\n%v", n, len(set), node, got, want)
		}
	}
}

func TestNthLargest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	values := []uint64{0, 1, 1 << 56, 1<<56 + 1, math.MaxUint64 - 1, math.MaxUint64}
	for range 1000 {
		scores := make([]uint64, 1+r.IntN(20))
		for i := range scores {
			if scores[i] = values[r.IntN(len(values))]; r.IntN(3) == 0 {
				scores[i] = r.Uint64()
			}
		}
		sorted := slices.Sorted(slices.Values(scores))
		for n := 1; n <= len(scores); n++ {
			want, wantTies := sorted[len(sorted)-n], 0
			for _, s := range sorted[len(sorted)-n:] {
				if s == want {
					wantTies++
				}
			}
			if nth, ties := nthLargest(scores, n); nth != want || ties != wantTies {
				t.Fatalf("%d. of %v: %d, %d times; want %d, %d times", n, sorted, nth, ties, want, wantTies)
			}
		}
	}
}

func BenchmarkPick(b *testing.B) {
	var set []Endpoint
	for i := range 2048 {
		set = append(set, Endpoint{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), 80), false})
	}
	b.ReportAllocs()
	for b.Loop() {
		Pick(set, 255, "node-1")
	}
}
