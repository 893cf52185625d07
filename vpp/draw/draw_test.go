package draw

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestOf(t *testing.T) {
	for _, tc := range []struct {
		name    string
		weights []uint8
		shares  []int
		total   int
	}{
		{"even", []uint8{2, 2, 2}, []int{2, 2, 2}, 6},
		{"weighted, with pads", []uint8{0, 0, 1, 0, 3}, []int{0, 0, 1, 0, 3}, 4},
		{"all of 8 bits", []uint8{100, 155}, []int{100, 155}, 255},
		{"a sum of 0 ends VPP", []uint8{0, 2, 254}, []int{0, 0, 0}, 0},
		{"a drained backend", []uint8{0, 0, 0, 2, 0, 0, 2, 254, 0, 2, 0}, []int{0, 0, 0, 2, 0, 0, 0, 0, 0, 2, 0}, 4},
		{"a sum beyond 8 bits", []uint8{200, 100, 60}, []int{44, 0, 60}, 104},
		{"none", nil, []int{}, 0},
	} {
		got := Of(nil, tc.weights)
		if !slices.Equal(got.Shares, tc.shares) || got.Total != tc.total {
			t.Errorf("%s: %+v, want %v of %d", tc.name, got, tc.shares, tc.total)
		}
	}
}

// search is VPP's binary search, number by number.
func search(prefixes []uint8, number int) int {
	low, high := 0, len(prefixes)-1
	for low < high {
		middle := (high-low)/2 + low
		if number > int(prefixes[middle]) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func TestOfEverySearch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 20_000 {
		weights := make([]uint8, 1+rnd.IntN(Most))
		for i := range weights {
			weights[i] = []uint8{0, 0, 2, 2, 254, uint8(rnd.Uint32())}[rnd.IntN(3+n%4)]
		}
		prefixes := slices.Clone(weights)
		for i := 1; i < len(prefixes); i++ {
			prefixes[i] += prefixes[i-1]
		}
		want := make([]int, len(weights))
		for number := 1; number <= int(prefixes[len(prefixes)-1]); number++ {
			want[search(prefixes, number)]++
		}
		if got := Of(nil, weights); !slices.Equal(got.Shares, want) {
			t.Fatalf("%v: %v, want %v", weights, got.Shares, want)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	weights := make([]uint8, Most)
	for i := range weights {
		if i%3 == 0 {
			weights[i] = 2
		}
	}
	var room [Most]int
	for b.Loop() {
		Of(room[:], weights)
	}
}

func TestDrains(t *testing.T) {
	type local struct {
		pad    bool
		weight uint8
	}
	p := func(weight uint8) local { return local{true, weight} }
	b := func(weight uint8) local { return local{false, weight} }
	for _, tc := range []struct {
		name   string
		locals []local
		want   bool
	}{
		{"a backend of two is drained", []local{p(0), p(0), p(0), b(2), p(0), p(0), b(2), p(254), p(0), b(2), p(0)}, true},
		{"no pad has a weight", []local{p(0), b(200), b(200)}, false},
		{"the weights add up to 0", []local{p(0), p(0), p(254), b(2), p(0)}, false},
		{"a pad gets flows", []local{p(3), b(200), b(100)}, false},
	} {
		of := func(l local) ([4]byte, uint8) {
			if l.pad {
				return PadAddr, l.weight
			}
			return [4]byte{10, 1, 1, 1}, l.weight
		}
		if got := Drains(tc.locals, of); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}
