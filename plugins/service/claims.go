package service

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// claims knows which services want which frontend. The zero address stands for every node address.
type claims struct {
	at    map[netip.Addr]map[spot][]*service // sorted by ID
	nodes *renderer.IPAddresses
	both  map[netip.Addr]struct{} // node addresses that services claim by name
}

// spot is a port on some address.
type spot struct {
	port     uint16
	protocol renderer.ProtocolType
}

func newClaims() *claims {
	return &claims{at: map[netip.Addr]map[spot][]*service{}, nodes: renderer.NewIPAddresses(), both: map[netip.Addr]struct{}{}}
}

// frontendsOf is everything a service asks for, sorted.
func frontendsOf(svc *renderer.ContivService) []renderer.Frontend {
	if svc == nil {
		return nil
	}
	out := make([]renderer.Frontend, 0, len(svc.Ports)*(1+svc.ClusterIPs.Len()+svc.ExternalIPs.Len()))
	for _, port := range svc.Ports {
		for _, addrs := range []*renderer.IPAddresses{svc.ClusterIPs, svc.ExternalIPs} {
			for _, a := range addrs.Addrs() {
				out = append(out, renderer.Frontend{IP: a, Port: port.Port, Protocol: port.Protocol})
			}
		}
		if port.NodePort != 0 {
			out = append(out, renderer.Frontend{Port: port.NodePort, Protocol: port.Protocol})
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
	spots := c.at[f.IP]
	if spots == nil {
		spots = map[spot][]*service{}
		c.at[f.IP] = spots
		if c.nodes.Contains(f.IP) {
			c.both[f.IP] = struct{}{}
		}
	}
	key := spot{f.Port, f.Protocol}
	at, _ := slices.BinarySearchFunc(spots[key], s, compareServices)
	spots[key] = slices.Insert(spots[key], at, s)
}

func (c *claims) remove(s *service, f renderer.Frontend) {
	spots, key := c.at[f.IP], spot{f.Port, f.Protocol}
	at, _ := slices.BinarySearchFunc(spots[key], s, compareServices)
	if spots[key] = slices.Delete(spots[key], at, at+1); len(spots[key]) > 0 {
		return
	}
	if delete(spots, key); len(spots) == 0 {
		delete(c.at, f.IP)
		delete(c.both, f.IP)
	}
}

// rivals calls f for every service that claims the frontend, directly or as a node port.
func (c *claims) rivals(at renderer.Frontend, f func(*service)) {
	key := spot{at.Port, at.Protocol}
	for _, s := range c.at[at.IP][key] {
		f(s)
	}
	switch {
	case !at.IP.IsValid():
		for ip := range c.both {
			for _, s := range c.at[ip][key] {
				f(s)
			}
		}
	case c.nodes.Contains(at.IP):
		for _, s := range c.at[netip.Addr{}][key] {
			f(s)
		}
	}
}

// claimants calls f for every service that claims a frontend at the address.
func (c *claims) claimants(a netip.Addr, f func(*service)) {
	for _, list := range c.at[a] {
		for _, s := range list {
			f(s)
		}
	}
}

// setNodes replaces the node addresses and calls dirty for services whose luck that may change.
func (c *claims) setNodes(nodes *renderer.IPAddresses, dirty func(*service)) {
	old := c.nodes
	c.nodes = nodes
	clear(c.both)
	for _, ip := range nodes.Addrs() {
		if _, named := c.at[ip]; named {
			c.both[ip] = struct{}{}
		}
	}
	for _, ip := range difference(old, nodes) {
		for key, named := range c.at[ip] {
			for _, list := range [][]*service{named, c.at[netip.Addr{}][key]} {
				for _, s := range list {
					dirty(s)
				}
			}
		}
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
		winner := c.at[f.IP][key][0]
		if f.IP.IsValid() && c.nodes.Contains(f.IP) {
			winner = first(winner, anyNode[key])
		}
		if winner != s {
			lose(f, winner)
			continue
		}
		if f.IP.IsValid() {
			continue
		}
		for ip := range c.both {
			if w := first(s, c.at[ip][key]); w != s {
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
