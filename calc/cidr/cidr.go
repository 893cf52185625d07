package cidr

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// CIDR is a masked netip.Prefix in 24 bytes without a pointer, so that the garbage collector need not scan tables of
// them.
type CIDR struct {
	hi, Lo uint64
	Bits   uint8
	V6     bool
}

// Of returns the network of a prefix.
func Of(p netip.Prefix) CIDR {
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), max(p.Bits()-96, 0))
	}
	p = p.Masked()
	a := p.Addr().As16()
	return CIDR{
		hi: binary.BigEndian.Uint64(a[:8]), Lo: binary.BigEndian.Uint64(a[8:]),
		Bits: uint8(p.Bits()), V6: p.Addr().Is6(),
	}
}

// Host returns the network of one address.
func Host(a netip.Addr) CIDR {
	a = a.Unmap()
	return Of(netip.PrefixFrom(a, a.BitLen()))
}

// Addr returns the network's address.
func (c CIDR) Addr() netip.Addr {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:8], c.hi)
	binary.BigEndian.PutUint64(a[8:], c.Lo)
	if c.V6 {
		return netip.AddrFrom16(a)
	}
	return netip.AddrFrom16(a).Unmap()
}

// Prefix returns the network as a prefix.
func (c CIDR) Prefix() netip.Prefix { return netip.PrefixFrom(c.Addr(), int(c.Bits)) }

// Host is the network's address alone.
func (c CIDR) Host() CIDR {
	c.Bits = 32
	if c.V6 {
		c.Bits = 128
	}
	return c
}

// Compare orders networks: IPv4 first, then by address and length.
func (c CIDR) Compare(o CIDR) int {
	if c.V6 != o.V6 {
		if o.V6 {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(c.hi, o.hi), cmp.Compare(c.Lo, o.Lo), cmp.Compare(c.Bits, o.Bits))
}

// Halves returns two networks that replace a /0 in sets: no data plane accepts a /0 there (Felix does the same).
func (c CIDR) Halves() (low, high CIDR) {
	low, high = c, c
	low.Bits, high.Bits = 1, 1
	if c.V6 {
		high.hi = 1 << 63
	} else {
		high.Lo |= 1 << 31
	}
	return low, high
}

// Bit returns one bit of the address, counted from its start.
func (c CIDR) Bit(i uint8) int {
	switch {
	case !c.V6:
		return int(c.Lo >> (31 - i) & 1)
	case i < 64:
		return int(c.hi >> (63 - i) & 1)
	}
	return int(c.Lo >> (127 - i) & 1)
}

// Common is the number of leading bits that two networks of one family share, at most the length of the shorter.
func (c CIDR) Common(o CIDR) uint8 {
	var n int
	switch {
	case !c.V6:
		n = bits.LeadingZeros32(uint32(c.Lo ^ o.Lo))
	case c.hi != o.hi:
		n = bits.LeadingZeros64(c.hi ^ o.hi)
	default:
		n = 64 + bits.LeadingZeros64(c.Lo^o.Lo)
	}
	return min(uint8(n), c.Bits, o.Bits)
}

// Truncate returns the network of n bits that contains this one.
func (c CIDR) Truncate(n uint8) CIDR { return Of(netip.PrefixFrom(c.Addr(), int(n))) }

// Texts returns prefixes as text, in the same order; nil: none.
func Texts(list []netip.Prefix) []string {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.String()
	}
	return out
}
