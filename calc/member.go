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
func (m member) String() string {
	if m.proto == 0 {
		return m.prefix().String()
	}
	return m.addr().String() + "," + protocolName(m.proto) + ":" + strconv.Itoa(int(m.port))
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

// texts renders members in a stable order.
func texts(list []member) []string {
	slices.SortFunc(list, member.compare)
	out := make([]string, len(list))
	for i, m := range list {
		out[i] = m.String()
	}
	return out
}

// content is what an endpoint or network set brings to the IP sets it belongs to.
type content struct {
	nets  []cidr // sorted, without duplicates and without /0
	ports []model.NamedPort
}

func contentOf(nets []netip.Prefix, ports []model.NamedPort) content {
	c := content{ports: ports}
	if len(nets) == 0 {
		return c
	}
	c.nets = make([]cidr, 0, len(nets))
	for _, p := range nets {
		switch n := cidrOf(p); {
		case !p.IsValid():
		case n.bits == 0:
			low, high := n.halves()
			c.nets = append(c.nets, low, high)
		default:
			c.nets = append(c.nets, n)
		}
	}
	slices.SortFunc(c.nets, cidr.compare)
	c.nets = slices.Compact(c.nets)
	return c
}

func (c content) equal(o content) bool {
	return slices.Equal(c.nets, o.nets) && slices.Equal(c.ports, o.ports)
}

// each calls f with every member the content brings to the set, each once.
func (c content) each(s *ipset, f func(member)) {
	if s.port == "" {
		for _, n := range c.nets {
			f(member{cidr: n})
		}
		return
	}
	for i, p := range c.ports {
		if p.Name != s.port || p.Protocol != s.proto || slices.Contains(c.ports[:i], p) {
			continue
		}
		for j, n := range c.nets {
			if j > 0 && c.nets[j-1].host() == n.host() {
				continue // two networks of one address; they are neighbours
			}
			f(member{cidr: n.host(), port: p.Port, proto: p.Protocol})
		}
	}
}

// brings tells whether the content brings m to the set.
func (c content) brings(s *ipset, m member) bool {
	if s.port == "" {
		_, ok := slices.BinarySearchFunc(c.nets, m.cidr, cidr.compare)
		return ok
	}
	named := slices.ContainsFunc(c.ports, func(p model.NamedPort) bool {
		return p.Name == s.port && p.Protocol == s.proto && p.Port == m.port
	})
	return named && slices.ContainsFunc(c.nets, func(n cidr) bool { return n.host() == m.cidr })
}

// keys calls f with everything members of the content are looked up by: its networks, and where it has ports the
// addresses of networks that are more than an address.
func (c content) keys(f func(cidr)) {
	for _, n := range c.nets {
		f(n)
		if h := n.host(); h != n && len(c.ports) > 0 {
			f(h)
		}
	}
}
