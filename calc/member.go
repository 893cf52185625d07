package calc

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/model"
)

// cidr is a masked netip.Prefix in 24 bytes without a pointer: the garbage collector need not look into tables of them.
type cidr struct {
	hi, lo uint64
	bits   uint8
	v6     bool
}

func cidrOf(p netip.Prefix) cidr {
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), max(p.Bits()-96, 0))
	}
	p = p.Masked()
	a := p.Addr().As16()
	return cidr{
		hi: binary.BigEndian.Uint64(a[:8]), lo: binary.BigEndian.Uint64(a[8:]),
		bits: uint8(p.Bits()), v6: p.Addr().Is6(),
	}
}

func hostCIDR(a netip.Addr) cidr {
	a = a.Unmap()
	return cidrOf(netip.PrefixFrom(a, a.BitLen()))
}

func (c cidr) addr() netip.Addr {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:8], c.hi)
	binary.BigEndian.PutUint64(a[8:], c.lo)
	if c.v6 {
		return netip.AddrFrom16(a)
	}
	return netip.AddrFrom16(a).Unmap()
}

func (c cidr) prefix() netip.Prefix { return netip.PrefixFrom(c.addr(), int(c.bits)) }

// host is the network's address alone.
func (c cidr) host() cidr {
	c.bits = 32
	if c.v6 {
		c.bits = 128
	}
	return c
}

func (c cidr) compare(o cidr) int {
	if c.v6 != o.v6 {
		if o.v6 {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(c.hi, o.hi), cmp.Compare(c.lo, o.lo), cmp.Compare(c.bits, o.bits))
}

// halves of the whole address space stand for it in sets: no data plane takes a /0 there (Felix does the same).
func (c cidr) halves() (low, high cidr) {
	low, high = c, c
	low.bits, high.bits = 1, 1
	if c.v6 {
		high.hi = 1 << 63
	} else {
		high.lo |= 1 << 31
	}
	return low, high
}

// member is one member of an IP set: a network, or with a protocol an address and a port.
type member struct {
	cidr
	port  uint16
	proto model.Protocol // 0: a network
}

// String is Felix's text of a member: "10.0.0.0/24", or "10.0.0.1,tcp:80".
func (m member) String() string { return string(m.appendTo(nil)) }

func (m member) appendTo(buf []byte) []byte {
	if m.proto == 0 {
		return m.prefix().AppendTo(buf)
	}
	buf = append(append(m.addr().AppendTo(buf), ','), protocolName(m.proto)...)
	return strconv.AppendUint(append(buf, ':'), uint64(m.port), 10)
}

func (m member) compare(o member) int {
	return cmp.Or(m.cidr.compare(o.cidr), cmp.Compare(m.proto, o.proto), cmp.Compare(m.port, o.port))
}

func protocolName(p model.Protocol) string {
	switch p {
	case model.UDP:
		return "udp"
	case model.SCTP:
		return "sctp"
	}
	return "tcp"
}

// texts renders members in a stable order. The texts of a large set are parts of one string.
func texts(list []member) []string {
	if len(list) == 0 {
		return nil
	}
	v4 := make([]uint64, 0, len(list))
	rest := list[:0]
	for _, m := range list {
		if m.proto == 0 && !m.v6 {
			v4 = append(v4, uint64(network4Of(m.cidr)))
		} else {
			rest = append(rest, m)
		}
	}
	slices.Sort(v4)
	slices.SortFunc(rest, member.compare)
	buf := make([]byte, 0, 16*len(v4)+32*len(rest))
	ends := make([]int, 0, len(list))
	for _, n := range v4 {
		buf = network4(n).cidr().prefix().AppendTo(buf)
		ends = append(ends, len(buf))
	}
	for _, m := range rest {
		buf = m.appendTo(buf)
		ends = append(ends, len(buf))
	}
	all, out, start := string(buf), make([]string, len(ends)), 0
	for i, end := range ends {
		out[i], start = all[start:end], end
	}
	return out
}
