package model

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
)

// OutsideIPv4 yields the fewest prefixes that hold every IPv4 address outside all ranges, in order. Ranges of IPv6 do not count.
// Without ranges it yields 0.0.0.0/0.
func OutsideIPv4(ranges []netip.Prefix) iter.Seq[netip.Prefix] {
	type span struct{ first, last uint64 }
	return func(yield func(netip.Prefix) bool) {
		taken := make([]span, 0, len(ranges))
		for _, r := range ranges {
			if !r.Addr().Is4() {
				continue
			}
			a := r.Masked().Addr().As4()
			first := uint64(binary.BigEndian.Uint32(a[:]))
			taken = append(taken, span{first, first + 1<<(32-r.Bits()) - 1})
		}
		slices.SortFunc(taken, func(a, b span) int { return int(int64(a.first) - int64(b.first)) })
		const end = 1 << 32
		next := uint64(0)
		for _, t := range append(taken, span{first: end, last: end}) {
			for next < t.first { // fill [next, t.first)
				bits := 32
				for size := uint64(2); bits > 0 && next%size == 0 && next+size <= t.first; size *= 2 {
					bits--
				}
				var a [4]byte
				binary.BigEndian.PutUint32(a[:], uint32(next))
				if !yield(netip.PrefixFrom(netip.AddrFrom4(a), bits)) {
					return
				}
				next += 1 << (32 - bits)
			}
			next = max(next, t.last+1)
		}
	}
}
