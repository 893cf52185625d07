package service

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// claims knows which services want which frontend. The zero address stands for every node address with node ports.
type claims struct {
	at    map[netip.Addr]*place
	nodes *renderer.IPAddresses   // all of them
	ports *renderer.IPAddresses   // those that node ports are served on
	both  map[netip.Addr]struct{} // of these, the ones that services claim by name
}

// spot is a port on some address.
type spot struct {
	port     uint16
	protocol renderer.ProtocolType
}

// place is who claims the spots of one address, sorted by ID. Most addresses have one spot, and most spots one claimant: for
// these there is room.
type place struct {
	spot  spot
	first []*service // of spot; none: there is no such spot
	more  map[spot][]*service
	one   [1]*service
}

func (p *place) get(at spot) []*service {
	switch {
	case p == nil:
		return nil
	case p.spot == at:
		return p.first
	}
	return p.more[at]
}

func (p *place) set(at spot, list []*service) {
	switch {
	case p.spot == at || len(p.first) == 0 && len(p.more) == 0:
		p.spot, p.first = at, list
	case len(list) == 0:
		delete(p.more, at)
	default:
		if p.more == nil {
			p.more = map[spot][]*service{}
		}
		p.more[at] = list
	}
}

func (p *place) empty() bool { return len(p.first) == 0 && len(p.more) == 0 }

// each calls f for every spot; p may be nil.
func (p *place) each(f func(spot, []*service)) {
	if p == nil {
		return
	}
	if len(p.first) > 0 {
		f(p.spot, p.first)
	}
	for at, list := range p.more {
		f(at, list)
	}
}

func newClaims() *claims {
	return &claims{at: map[netip.Addr]*place{}, nodes: renderer.NewIPAddresses(), ports: renderer.NewIPAddresses(), both: map[netip.Addr]struct{}{}}
}

// appendFrontends appends everything a rendered service asks for to an empty list, sorted.
func appendFrontends(out []renderer.Frontend, spec *model.Service, noExternalIPs bool) []renderer.Frontend {
	external, _ := externalAddrs(spec, noExternalIPs, func(string, ...any) {})
	for i, port := range spec.Ports {
		if slices.ContainsFunc(spec.Ports[:i], func(o model.ServicePort) bool { return o.Name == port.Name }) {
			continue // not served
		}
		protocol := renderer.ProtocolType(port.Protocol)
		for _, addrs := range [][]netip.Addr{spec.ClusterIPs, external} {
			for _, a := range addrs {
				if a = a.Unmap().WithZone(""); a.IsValid() { // as renderer.IPAddresses has it
					out = append(out, renderer.Frontend{IP: a, Port: port.Port, Protocol: protocol})
				}
			}
		}
		if port.NodePort != 0 {
			out = append(out, renderer.Frontend{Port: port.NodePort, Protocol: protocol})
		}
	}
	slices.SortFunc(out, renderer.Frontend.Compare)
	return slices.Compact(out)
}

// set replaces what a service claims and calls dirty for every other service whose luck that may change.
func (c *claims) set(s *service, want []renderer.Frontend, dirty func(*service)) {
	if slices.Equal(s.claimed, want) {
		return
	}
	for _, f := range s.claimed {
		if _, keep := slices.BinarySearchFunc(want, f, renderer.Frontend.Compare); !keep {
			c.remove(s, f)
			c.rivals(f, dirty)
		}
	}
	for _, f := range want {
		if _, had := slices.BinarySearchFunc(s.claimed, f, renderer.Frontend.Compare); !had {
			c.add(s, f)
			c.rivals(f, dirty)
		}
	}
	s.claimed = want
}

func (c *claims) add(s *service, f renderer.Frontend) {
	here := c.at[f.IP]
	if here == nil {
		here = &place{}
		c.at[f.IP] = here
		if c.ports.Contains(f.IP) {
			c.both[f.IP] = struct{}{}
		}
	}
	key := spot{f.Port, f.Protocol}
	list := here.get(key)
	if list == nil && here.empty() {
		list = here.one[:0]
	}
	at, _ := slices.BinarySearchFunc(list, s, compareServices)
	here.set(key, slices.Insert(list, at, s))
}

func (c *claims) remove(s *service, f renderer.Frontend) {
	here, key := c.at[f.IP], spot{f.Port, f.Protocol}
	list := here.get(key)
	at, _ := slices.BinarySearchFunc(list, s, compareServices)
	if here.set(key, slices.Delete(list, at, at+1)); here.empty() {
		delete(c.at, f.IP)
		delete(c.both, f.IP)
	}
}

// rivals calls f for every service that claims the frontend, directly or as a node port.
func (c *claims) rivals(at renderer.Frontend, f func(*service)) {
	key := spot{at.Port, at.Protocol}
	for _, s := range c.at[at.IP].get(key) {
		f(s)
	}
	switch {
	case !at.IP.IsValid():
		for ip := range c.both {
			for _, s := range c.at[ip].get(key) {
				f(s)
			}
		}
	case c.ports.Contains(at.IP):
		for _, s := range c.at[netip.Addr{}].get(key) {
			f(s)
		}
	}
}

// claimants calls f for every service that claims a frontend at the address.
func (c *claims) claimants(a netip.Addr, f func(*service)) {
	c.at[a].each(func(_ spot, list []*service) {
		for _, s := range list {
			f(s)
		}
	})
}

// setNodes replaces the node addresses, all and those that node ports are served on, and calls dirty for services whose luck
// that may change.
func (c *claims) setNodes(nodes, ports *renderer.IPAddresses, dirty func(*service)) {
	old := c.ports
	c.nodes, c.ports = nodes, ports
	clear(c.both)
	for _, ip := range ports.Addrs() {
		if _, named := c.at[ip]; named {
			c.both[ip] = struct{}{}
		}
	}
	for _, ip := range difference(old, ports) {
		c.at[ip].each(func(key spot, named []*service) {
			for _, list := range [][]*service{named, c.at[netip.Addr{}].get(key)} {
				for _, s := range list {
					dirty(s)
				}
			}
		})
	}
}

// difference is every address in just one of the sets.
func difference(a, b *renderer.IPAddresses) []netip.Addr {
	var out []netip.Addr
	for _, ip := range a.Addrs() {
		if !b.Contains(ip) {
			out = append(out, ip)
		}
	}
	for _, ip := range b.Addrs() {
		if !a.Contains(ip) {
			out = append(out, ip)
		}
	}
	return out
}

// conflicts lists the service's frontends that another one has, which is the first claimant by namespace and name.
// A node port may be lost as a whole, or on single node addresses to services that name these addresses.
func (c *claims) conflicts(s *service) map[renderer.Frontend]model.ServiceID {
	var lost map[renderer.Frontend]model.ServiceID
	lose := func(f renderer.Frontend, to *service) {
		if lost == nil {
			lost = map[renderer.Frontend]model.ServiceID{}
		}
		lost[f] = to.id
	}
	anyNode := c.at[netip.Addr{}]
	for _, f := range s.claimed {
		key := spot{f.Port, f.Protocol}
		winner := c.at[f.IP].get(key)[0]
		if f.IP.IsValid() && c.ports.Contains(f.IP) {
			winner = first(winner, anyNode.get(key))
		}
		if winner != s {
			lose(f, winner)
			continue
		}
		if f.IP.IsValid() {
			continue
		}
		for ip := range c.both {
			if w := first(s, c.at[ip].get(key)); w != s {
				lose(renderer.Frontend{IP: ip, Port: f.Port, Protocol: f.Protocol}, w)
			}
		}
	}
	return lost
}

// first is the one of s and the head of a sorted list that comes first.
func first(s *service, list []*service) *service {
	if len(list) > 0 && compareServices(list[0], s) < 0 {
		return list[0]
	}
	return s
}
