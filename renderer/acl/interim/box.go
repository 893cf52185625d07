package interim

import (
	"encoding/binary"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

// prefix is a netip.Prefix as two words of its address and two of its mask. IPv4 has the last 32 bits.
type prefix struct{ hi, lo, maskHi, maskLo uint64 }

func prefixOf(p netip.Prefix) prefix {
	b := p.Addr().As16()
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return prefix{
		hi: binary.BigEndian.Uint64(b[:8]), lo: binary.BigEndian.Uint64(b[8:]),
		maskHi: ^(^uint64(0) >> min(bits, 64)), maskLo: ^(^uint64(0) >> max(bits-64, 0)),
	}
}

// box is what a rule matches, in a form that is compared fast: a change compares thousands of rules with thousands of others, and nearly all have no packet in common.
type box struct {
	src, dst           prefix
	srcPorts, dstPorts match.Span
	proto              uint8
	v4                 bool
}

func boxOf(a *match.Atom) box {
	return box{prefixOf(a.Src), prefixOf(a.Dst), a.SrcPorts, a.DstPorts, a.Proto, a.Src.Addr().Is4()}
}

// meets reports whether a packet matches both.
func (b *box) meets(o *box) bool {
	return (b.dst.hi^o.dst.hi)&b.dst.maskHi&o.dst.maskHi|(b.dst.lo^o.dst.lo)&b.dst.maskLo&o.dst.maskLo == 0 &&
		(b.src.hi^o.src.hi)&b.src.maskHi&o.src.maskHi|(b.src.lo^o.src.lo)&b.src.maskLo&o.src.maskLo == 0 &&
		(b.proto == o.proto || b.proto == 0 || o.proto == 0) && b.v4 == o.v4 &&
		max(b.dstPorts.Lo, o.dstPorts.Lo) <= min(b.dstPorts.Hi, o.dstPorts.Hi) && max(b.srcPorts.Lo, o.srcPorts.Lo) <= min(b.srcPorts.Hi, o.srcPorts.Hi)
}

// boxedList is a list with the boxes of its rules.
type boxedList struct {
	rules []flatRule
	boxes []box
}

func boxed(rules []flatRule) boxedList {
	boxes := make([]box, len(rules))
	for i := range rules {
		boxes[i] = boxOf(&rules[i].Atom)
	}
	return boxedList{rules, boxes}
}
