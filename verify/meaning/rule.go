package meaning

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
	"github.com/contiv-agent/contiv-agent/space"
)

// match is the headers that a rule matches. A doubt says why it cannot be evaluated.
func (c *Cluster) match(r *model.Rule) (set space.Set, doubt string) {
	if known, ok := c.matches[r]; ok {
		return known, c.doubts[r]
	}
	set = c.evaluate(r)
	c.matches[r] = set
	return set, c.doubts[r]
}

func (c *Cluster) evaluate(r *model.Rule) space.Set {
	s, set := c.space, c.space.All()
	if r.HTTP != nil {
		c.doubts[r] = "a rule matches HTTP, which is not evaluated"
	}
	switch r.IPVersion {
	case 4:
		set = s.Box(space.All4())
	case 6:
		set = s.Box(space.All6())
	}
	if r.Protocol != (model.RuleProtocol{}) {
		set = s.Intersect(set, c.protocolSet(r, r.Protocol))
	}
	if r.NotProtocol != (model.RuleProtocol{}) {
		set = s.Minus(set, c.protocolSet(r, r.NotProtocol))
	}
	if r.ICMP != nil {
		set = s.Intersect(set, c.icmpSet(r.ICMP))
	}
	if r.NotICMP != nil {
		set = s.Minus(set, c.icmpSet(r.NotICMP))
	}
	set = s.Intersect(set, c.peerSet(&r.Source, false))
	return s.Intersect(set, c.peerSet(&r.Destination, true))
}

// families is a box in both families.
func (c *Cluster) families(narrow func(*space.Box)) space.Set {
	four, six := space.All4(), space.All6()
	narrow(&four)
	narrow(&six)
	return c.space.Union(c.space.Box(four), c.space.Box(six))
}

// protocolNumbers are Felix's names.
var protocolNumbers = map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132, "udplite": 136} // read only

func (c *Cluster) protocolSet(r *model.Rule, p model.RuleProtocol) space.Set {
	number, known := p.Number, true
	if p.Name != "" {
		number, known = protocolNumbers[p.Name]
	}
	if !known {
		c.doubts[r] = "a rule names the protocol " + p.Name + ", which is not known"
	}
	return c.families(func(b *space.Box) { b.Protocols = space.One(uint16(number)) })
}

func (c *Cluster) icmpSet(m *model.ICMPMatch) space.Set {
	four, six := space.All4(), space.All6()
	four.Protocols, six.Protocols = space.One(space.ICMP), space.One(space.ICMPv6)
	for _, b := range []*space.Box{&four, &six} {
		b.SrcPorts = space.One(uint16(m.Type))
		if m.HasCode {
			b.DstPorts = space.One(uint16(m.Code))
		}
	}
	return c.space.Union(c.space.Box(four), c.space.Box(six))
}

// peer is the headers whose source, or destination, is the peer.
func (c *Cluster) peerSet(p *model.Peer, destination bool) space.Set {
	s, set := c.space, c.space.All()
	at := s.Sources
	if destination {
		at = s.Destinations
	}
	if len(p.Nets) > 0 {
		set = s.Intersect(set, at(p.Nets...))
	}
	switch { // beside a selector, a negated one excludes what the selector selects, and no addresses of anything else
	case p.Selector != "":
		set = s.Intersect(set, c.selected(p.Selector, p.NotSelector, destination))
	case p.NotSelector != "":
		set = s.Minus(set, c.selected(p.NotSelector, "", destination))
	}
	if len(p.NotNets) > 0 {
		set = s.Minus(set, at(p.NotNets...))
	}
	if len(p.Ports) > 0 {
		set = s.Intersect(set, c.ports(p.Ports, destination))
	}
	if len(p.NotPorts) > 0 {
		set = s.Minus(set, c.ports(p.NotPorts, destination))
	}
	if p.Service != (model.ServiceID{}) {
		set = s.Intersect(set, c.serving(p.Service, destination))
	}
	return set
}

// serving is the headers to an address and port of a Service's endpoints, or from an address of theirs. Endpoints that are not ready count.
func (c *Cluster) serving(id model.ServiceID, destination bool) space.Set {
	var sets []space.Set
	for _, slice := range c.Slices {
		if slice.Service != id {
			continue
		}
		for _, e := range slice.Endpoints {
			net := netip.PrefixFrom(e.Addr, e.Addr.BitLen())
			if !destination {
				sets = append(sets, c.space.Sources(net))
				continue
			}
			for _, port := range slice.Ports {
				sets = append(sets, c.space.Intersect(c.space.Destinations(net), c.families(func(b *space.Box) {
					b.Protocols, b.DstPorts = space.One(uint16(port.Protocol)), space.One(port.Port)
				})))
			}
		}
	}
	return c.space.Union(sets...)
}

// selected is the headers from, or to, an address of what a selector selects and the other one, unless empty, does not.
func (c *Cluster) selected(text, not string, destination bool) space.Set {
	key := sideKey{selector: text, not: not, destination: destination}
	if set, known := c.peers[key]; known {
		return set
	}
	parsed, err := selector.Parse(text)
	negated, wrong := &selector.Selector{}, error(nil) // matches nothing
	if not != "" {
		negated, wrong = selector.Parse(not)
	}
	var nets []netip.Prefix
	for i := range c.entities {
		if e := &c.entities[i]; err == nil && wrong == nil && parsed.Matches(e.labels) && !negated.Matches(e.labels) {
			nets = append(nets, e.nets...)
		}
	}
	set := c.space.Sources(nets...)
	if destination {
		set = c.space.Destinations(nets...)
	}
	c.peers[key] = set
	return set
}

// sideKey is the selection of one side of a rule: what selectors select, or a named port.
type sideKey struct {
	selector, not string
	port          string
	destination   bool
}

// ports is the headers with one of the ports. A name stands for the ports of that name at the addresses of pods.
func (c *Cluster) ports(list []model.PortMatch, destination bool) space.Set {
	var sets []space.Set
	for _, m := range list {
		if m.Name == "" {
			for _, protocol := range []uint16{space.TCP, space.UDP, space.SCTP} {
				sets = append(sets, c.families(func(b *space.Box) {
					b.Protocols = space.One(protocol)
					*side(b, destination) = space.Span{First: m.First, Last: m.Last}
				}))
			}
			continue
		}
		sets = append(sets, c.namedPorts(m.Name, destination))
	}
	return c.space.Union(sets...)
}

func side(b *space.Box, destination bool) *space.Span {
	if destination {
		return &b.DstPorts
	}
	return &b.SrcPorts
}

func (c *Cluster) namedPorts(name string, destination bool) space.Set {
	key := sideKey{port: name, destination: destination}
	if set, known := c.peers[key]; known {
		return set
	}
	var sets []space.Set
	for i := range c.entities {
		e := &c.entities[i]
		for _, port := range e.ports {
			if port.Name != name {
				continue
			}
			for _, net := range e.nets {
				b := space.All4()
				if net.Addr().Is6() {
					b = space.All6()
				}
				if b.Src = net; destination {
					b.Src, b.Dst = b.Dst, net
				}
				b.Protocols = space.One(uint16(port.Protocol))
				*side(&b, destination) = space.One(port.Port)
				sets = append(sets, c.space.Box(b))
			}
		}
	}
	c.peers[key] = c.space.Union(sets...)
	return c.peers[key]
}
