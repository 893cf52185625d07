// Package netset turns texts into prefixes, and sorted lists of prefixes into their parts.
//
// Invariant: every returned prefix is masked, and of the family of its origin. IPv4 addresses mapped to IPv6 count as IPv4.
package netset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Parse parses an address or a prefix, with or without host bits.
func Parse(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is no address", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	n, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	if n.Addr().Is4In6() {
		if n.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%q mixes families", text)
		}
		n = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
	}
	return n.Masked(), nil
}

// Compare orders by address, then the wider first: a prefix directly precedes all prefixes inside it.
func Compare(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// Inside returns the part of a sorted list within p.
func Inside(list []netip.Prefix, p netip.Prefix) []netip.Prefix {
	lo, _ := slices.BinarySearchFunc(list, p, Compare)
	hi := lo
	if p.Bits() == 0 {
		return list[lo:]
	}
	for step := 1; hi < len(list) && p.Contains(list[hi].Addr()); step *= 2 { // gallop, then search
		hi = min(hi+step, len(list))
	}
	n, _ := slices.BinarySearchFunc(list[lo:hi], p, func(e, p netip.Prefix) int {
		if p.Contains(e.Addr()) {
			return -1
		}
		return 1
	})
	return list[lo : lo+n]
}

// Rest appends the prefixes of p that are in none of holes, which are sorted and within p.
func Rest(out []netip.Prefix, p netip.Prefix, holes []netip.Prefix) []netip.Prefix {
	if len(holes) == 0 {
		return append(out, p)
	}
	if holes[0] == p {
		return out
	}
	lower, upper := halves(p)
	cut, _ := slices.BinarySearchFunc(holes, upper, Compare)
	return Rest(Rest(out, lower, holes[:cut]), upper, holes[cut:])
}

// halves splits a prefix of more than one address.
func halves(p netip.Prefix) (lower, upper netip.Prefix) {
	bits := p.Bits() + 1
	raw := p.Addr().AsSlice()
	lower = netip.PrefixFrom(p.Addr(), bits)
	raw[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	a, _ := netip.AddrFromSlice(raw)
	return lower, netip.PrefixFrom(a, bits)
}

// Separate sorts prefixes and omits those within others. It modifies the list.
func Separate(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, Compare)
	out := list[:0]
	for _, p := range list {
		if n := len(out); n == 0 || !out[n-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return slices.Clip(out)
}

// EachWithin reports whether each prefix lies in one of others.
func EachWithin(list, others []netip.Prefix) bool {
	return !slices.ContainsFunc(list, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(others, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
	})
}

// Overlap returns the intersection of two prefixes: the longer one, if the other contains it.
func Overlap(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() < b.Bits() {
		a, b = b, a
	}
	return a, b.Contains(a.Addr())
}
