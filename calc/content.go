package calc

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/model"
)

// content is what an endpoint or network set adds to its IP sets. The zero value adds nothing.
type content struct {
	one  network4     // the only network, if content is exactly one IPv4 network; zero otherwise
	more *moreContent // everything, in all other cases
}

type moreContent struct {
	v4    []network4  // sorted, without duplicates
	v6    []cidr.CIDR // sorted, without duplicates and without /0
	ports []model.NamedPort
}

func contentOf(nets []netip.Prefix, ports []model.NamedPort) content {
	var v4 []network4
	var v6 []cidr.CIDR
	add := func(n cidr.CIDR) {
		if n.V6 {
			v6 = append(v6, n)
		} else {
			v4 = append(v4, network4Of(n))
		}
	}
	if len(nets) == 1 && len(ports) == 0 && nets[0].Addr().Is4() && nets[0].Bits() > 0 {
		return content{one: network4Of(cidr.Of(nets[0]))}
	}
	if len(nets) > 1 {
		v4 = make([]network4, 0, len(nets))
	}
	for _, p := range nets {
		switch n := cidr.Of(p); {
		case !p.IsValid():
		case n.Bits == 0:
			low, high := n.Halves()
			add(low)
			add(high)
		default:
			add(n)
		}
	}
	slices.Sort(v4)
	slices.SortFunc(v6, cidr.CIDR.Compare)
	m := moreContent{v4: slices.Compact(v4), v6: slices.Compact(v6), ports: ports}
	if len(m.v4)+len(m.v6) == 0 {
		return content{} // a named port without an address adds nothing
	}
	return content{more: &m}
}

func (c content) empty() bool { return c == content{} }

func (c content) equal(o content) bool {
	if c.more == nil || o.more == nil {
		return c == o
	}
	return slices.Equal(c.more.v4, o.more.v4) && slices.Equal(c.more.v6, o.more.v6) && slices.Equal(c.more.ports, o.more.ports)
}

// nets calls f with each network, in order.
func (c content) nets(f func(cidr.CIDR)) {
	if c.one != 0 {
		f(c.one.cidr())
	}
	if c.more == nil {
		return
	}
	for _, n := range c.more.v4 {
		f(n.cidr())
	}
	for _, n := range c.more.v6 {
		f(n)
	}
}

// hasNetwork reports whether n is one of the networks.
func (c content) hasNetwork(n cidr.CIDR) bool {
	switch {
	case c.more == nil:
		return c.one != 0 && c.one.cidr() == n
	case n.V6:
		_, ok := slices.BinarySearchFunc(c.more.v6, n, cidr.CIDR.Compare)
		return ok
	}
	_, ok := slices.BinarySearch(c.more.v4, network4Of(n))
	return ok
}

// each calls f once with every member that the content adds to the set.
func (c content) each(s *ipset, f func(member)) {
	if s.port == "" {
		c.nets(func(n cidr.CIDR) { f(member{CIDR: n}) })
		return
	}
	if c.more == nil {
		return
	}
	for i, p := range c.more.ports {
		if p.Name != s.port || p.Protocol != s.proto || slices.Contains(c.more.ports[:i], p) {
			continue
		}
		last := cidr.CIDR{}
		c.nets(func(n cidr.CIDR) {
			if n.Host() != last { // several networks of one address are neighbours
				last = n.Host()
				f(member{CIDR: last, port: p.Port, proto: p.Protocol})
			}
		})
	}
}

// contains reports whether the content adds m to the set.
func (c content) contains(s *ipset, m member) bool {
	if s.port == "" {
		return c.hasNetwork(m.CIDR)
	}
	if c.more == nil || !slices.ContainsFunc(c.more.ports, func(p model.NamedPort) bool {
		return p.Name == s.port && p.Protocol == s.proto && p.Port == m.port
	}) {
		return false
	}
	found := false
	c.nets(func(n cidr.CIDR) { found = found || n.Host() == m.CIDR })
	return found
}

// keys calls f with every network under which members of the content are looked up: its networks, and, if it has ports,
// the addresses of networks that are longer than one address.
func (c content) keys(f func(cidr.CIDR)) {
	ports := c.more != nil && len(c.more.ports) > 0
	c.nets(func(n cidr.CIDR) {
		f(n)
		if h := n.Host(); h != n && ports {
			f(h)
		}
	})
}

// owners records which items have a network: nearly always one.
type owners struct {
	hosts  map[uint32]uint32      // IPv4 addresses; a table of eight-byte entries
	nets   map[cidr.CIDR]uint32   // all other networks
	others map[cidr.CIDR][]uint32 // the second and further owners, which are rare
}

func newOwners() owners {
	return owners{hosts: map[uint32]uint32{}, nets: map[cidr.CIDR]uint32{}, others: map[cidr.CIDR][]uint32{}}
}

func (o *owners) first(n cidr.CIDR) (item uint32, ok bool) {
	if n.Bits == 32 && !n.V6 {
		item, ok = o.hosts[uint32(n.Lo)]
	} else {
		item, ok = o.nets[n]
	}
	return item, ok
}

func (o *owners) setFirst(n cidr.CIDR, item uint32) {
	if n.Bits == 32 && !n.V6 {
		o.hosts[uint32(n.Lo)] = item
	} else {
		o.nets[n] = item
	}
}

func (o *owners) dropFirst(n cidr.CIDR) {
	if n.Bits == 32 && !n.V6 {
		delete(o.hosts, uint32(n.Lo))
	} else {
		delete(o.nets, n)
	}
}
