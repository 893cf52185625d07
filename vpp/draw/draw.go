// Package draw computes which local of a load-balanced mapping NAT44-ED chooses for a new flow, for every number that it can draw.
//
// Input: the weights of the locals in the order of their slots. Output: how many numbers choose each local. Invariant: the same as VPP
// (nat44_ed.c snat_static_mapping_match, 24.06 to 26.06), also where the sum of weights exceeds its 8 bits.
package draw

// PadAddr is the address of the pads that drain backends (vppagent/descriptor/nat/drain): locals that must get no flow. It is for documentation
// (RFC 5737).
var PadAddr = [4]byte{192, 0, 2, 5}

// Most is the largest number of locals of a mapping: VPP counts them in a byte.
const Most = 255

// Outcome says how VPP chooses.
type Outcome struct {
	// Shares has, for each local, how many of the Total numbers choose it.
	Shares []int
	// Total is how many numbers VPP draws from: the sum of the weights modulo 256. 0: VPP divides by zero at the next new flow, and ends.
	Total int
}

// Of returns the outcome of a list of weights. The Shares use room if they fit.
func Of(room []int, weights []uint8) Outcome {
	var prefixes [Most + 1]uint8
	p := append(prefixes[:0], weights...)
	for i := 1; i < len(p); i++ {
		p[i] += p[i-1]
	}
	out := Outcome{Shares: append(room[:0], make([]int, len(p))...)}
	if len(p) == 0 {
		return out
	}
	out.Total = int(p[len(p)-1])
	divide(out.Shares, p, 0, len(p)-1, 1, out.Total)
	return out
}

// divide adds to shares which locals VPP's binary search finds for the numbers from first to last among the locals from low to high. It looks behind the
// local in the middle with all numbers above that local's prefix, and before it with the others. It looks for the first prefix that reaches a number;
// prefixes that wrapped are not sorted, and it may find another one that reaches it. It always finds one, because the last prefix is the total.
func divide(shares []int, prefixes []uint8, low, high, first, last int) {
	for low < high && first <= last {
		middle := (high-low)/2 + low
		limit := int(prefixes[middle])
		divide(shares, prefixes, middle+1, high, max(first, limit+1), last)
		high, last = middle, min(last, limit)
	}
	if first <= last {
		shares[low] += last - first + 1
	}
}

// Drains reports that a pad drains a backend, so that the weights exceed VPP's 8 bits on purpose, and that no pad gets a new flow and VPP does not
// end. of returns address and weight of a local.
func Drains[T any](locals []T, of func(T) ([4]byte, uint8)) bool {
	weights, drains := make([]uint8, len(locals)), false
	for i, l := range locals {
		addr, weight := of(l)
		weights[i], drains = weight, drains || addr == PadAddr && weight != 0
	}
	out := Of(nil, weights)
	for i, l := range locals {
		if addr, _ := of(l); addr == PadAddr && out.Shares[i] > 0 {
			return false
		}
	}
	return drains && out.Total > 0
}
