package service

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// claims indexes which services ask for which frontend. The zero address stands for every node address with node ports.
type claims struct {
	at    map[netip.Addr]*place
	nodes *renderer.IPAddresses // all of them
	ports *renderer.IPAddresses // those that node ports are served on
}

func (a ask) compare(o ask) int {
	return cmp.Or(a.Frontend.Compare(o.Frontend), falseFirst(a.outer, o.outer))
}

// spot is a port on some address.
type spot struct {
	port     uint16
	protocol renderer.ProtocolType
}

// claimant is a service that asks for a spot.
type claimant struct {
	by    *service
	outer bool
}

// compare sorts the owner of a spot first: cluster IPs before all else, then the older Service.
func (c claimant) compare(o claimant) int {
	return cmp.Or(falseFirst(c.outer, o.outer), c.by.asking.CompareAge(o.by.asking))
}

// place holds the claims for one address. The first of each list has the spot. Most addresses have one spot, and most spots one
// claimant, so place has room for these.
type place struct {
	spot  spot
	first []claimant // of spot; none: the spot does not exist
	more  map[spot][]claimant
	inner int // number of claims by cluster IPs
	one   [1]claimant
}

func (p *place) claimantsAt(at spot) []claimant {
	switch {
	case p == nil:
		return nil
	case p.spot == at:
		return p.first
	}
	return p.more[at]
}

func (p *place) setClaimants(at spot, list []claimant) {
	switch {
	case p.spot == at || len(p.first) == 0 && len(p.more) == 0:
		p.spot, p.first = at, list
	case len(list) == 0:
		delete(p.more, at)
	default:
		if p.more == nil {
			p.more = map[spot][]claimant{}
		}
		p.more[at] = list
	}
}

func (p *place) empty() bool { return len(p.first) == 0 && len(p.more) == 0 }

// each calls f for every claim at every spot; p may be nil.
func (p *place) each(f func(claimant)) {
	if p == nil {
		return
	}
	for _, c := range p.first {
		f(c)
	}
	for _, list := range p.more {
		for _, c := range list {
			f(c)
		}
	}
}

func newClaims() *claims {
	return &claims{at: map[netip.Addr]*place{}, nodes: renderer.NewIPAddresses(), ports: renderer.NewIPAddresses()}
}

// appendAsks appends all frontends that a service asks for to an empty list, sorted, each once. Closed returns why an external IP is
// not served; "": it is. A service of another proxy asks for its cluster IPs only, because it owns them nevertheless.
func appendAsks(out []ask, spec *model.Service, closed func(netip.Addr) string, served bool) []ask {
	var external []netip.Addr
	if served {
		external, _ = externalAddrs(spec, closed, func(string, ...any) {})
	}
	for i, port := range spec.Ports {
		if slices.ContainsFunc(spec.Ports[:i], func(o model.ServicePort) bool { return o.Name == port.Name }) {
			continue // not served
		}
		protocol := renderer.ProtocolType(port.Protocol)
		for outer, addrs := range [][]netip.Addr{spec.ClusterIPs, external} {
			for _, a := range addrs {
				if a = a.Unmap().WithZone(""); a.IsValid() { // in the form of renderer.IPAddresses
					out = append(out, ask{renderer.Frontend{IP: a, Port: port.Port, Protocol: protocol}, outer > 0})
				}
			}
		}
		if port.NodePort != 0 && served {
			out = append(out, ask{renderer.Frontend{Port: port.NodePort, Protocol: protocol}, true})
		}
	}
	slices.SortFunc(out, ask.compare)
	return slices.CompactFunc(out, func(a, b ask) bool { return a.Frontend == b.Frontend })
}

// setClaims replaces a service's claims by those of spec (nil: none), and calls dirty for every other service whose frontends may change
// as a result.
func (c *claims) setClaims(s *service, spec *model.Service, want []ask, dirty func(*service)) {
	sameAge := s.asking != nil && spec != nil && s.asking.CompareAge(spec) == 0
	if sameAge && slices.Equal(s.claimed, want) {
		s.asking = spec
		return
	}
	for _, a := range s.claimed {
		if _, keep := slices.BinarySearchFunc(want, a, ask.compare); !keep || !sameAge {
			c.removeClaim(s, a)
			c.rivals(a, dirty)
		}
	}
	s.asking = spec
	for _, a := range want {
		if _, had := slices.BinarySearchFunc(s.claimed, a, ask.compare); !had || !sameAge {
			c.addClaim(s, a)
			c.rivals(a, dirty)
		}
	}
	s.claimed = want
}

func (c *claims) addClaim(s *service, a ask) {
	here := c.at[a.IP]
	if here == nil {
		here = &place{}
		c.at[a.IP] = here
	}
	if !a.outer {
		here.inner++
	}
	key := spot{a.Port, a.Protocol}
	list := here.claimantsAt(key)
	if list == nil && here.empty() {
		list = here.one[:0]
	}
	at, _ := slices.BinarySearchFunc(list, claimant{s, a.outer}, claimant.compare)
	here.setClaimants(key, slices.Insert(list, at, claimant{s, a.outer}))
}

func (c *claims) removeClaim(s *service, a ask) {
	here, key := c.at[a.IP], spot{a.Port, a.Protocol}
	list := here.claimantsAt(key)
	at, _ := slices.BinarySearchFunc(list, claimant{s, a.outer}, claimant.compare)
	if !a.outer {
		here.inner--
	}
	if here.setClaimants(key, slices.Delete(list, at, at+1)); here.empty() {
		delete(c.at, a.IP)
	}
}

// rivals calls f for every service that a claim may affect: those that claim the same frontend, and for a cluster IP those that
// claim any port of the address.
func (c *claims) rivals(a ask, f func(*service)) {
	if !a.outer {
		c.claimants(a.IP, f)
		return
	}
	for _, other := range c.at[a.IP].claimantsAt(spot{a.Port, a.Protocol}) {
		f(other.by)
	}
}

// claimants calls f for every service that claims a frontend at the address, once or more often.
func (c *claims) claimants(a netip.Addr, f func(*service)) {
	c.at[a].each(func(c claimant) { f(c.by) })
}

// setNodes replaces the node addresses, all and those that node ports are served on, and calls dirty for services whose frontends
// may change as a result.
func (c *claims) setNodes(nodes, ports *renderer.IPAddresses, dirty func(*service)) {
	changed := difference(c.nodes, nodes)
	c.nodes, c.ports = nodes, ports
	for _, ip := range changed {
		c.claimants(ip, dirty)
	}
}

// difference returns every address in exactly one of the sets.
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

// conflicts lists the service's frontends that an older Service has, except at refused addresses.
func (c *claims) conflicts(s *service, refused map[netip.Addr]string) map[renderer.Frontend]model.ServiceID {
	var lost map[renderer.Frontend]model.ServiceID
	for _, a := range s.claimed {
		owner := c.at[a.IP].claimantsAt(spot{a.Port, a.Protocol})[0].by
		if owner == s || refused[a.IP] != "" {
			continue
		}
		if lost == nil {
			lost = map[renderer.Frontend]model.ServiceID{}
		}
		lost[a.Frontend] = owner.id
	}
	return lost
}

// inner returns the first Service that has an address as its cluster IP, except one; nil: none.
func (c *claims) inner(a netip.Addr, except *service) *service {
	here := c.at[a]
	if here == nil || here.inner == 0 {
		return nil
	}
	var found *service
	here.each(func(c claimant) {
		if !c.outer && c.by != except && (found == nil || c.by.asking.CompareAge(found.asking) < 0) {
			found = c.by
		}
	})
	return found
}
