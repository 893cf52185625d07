package serving

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// endpoint is an endpoint of one port, which all slices name once.
type endpoint struct {
	*model.Endpoint
	at    netip.AddrPort
	local bool
}

// portEndpoints returns the endpoints of a port in one family that traffic policy Cluster and traffic policy Local use on this node, and those of
// TCP that terminate or are not ready. All are sorted.
func (c *cluster) portEndpoints(s *model.Service, p model.ServicePort, v6 bool) (everywhere, here []endpoint, leaving []netip.AddrPort) {
	all := c.namedEndpoints(s, p, v6)
	var local []endpoint
	for _, e := range all {
		if e.local {
			local = append(local, e)
		}
		if p.Protocol == model.TCP && (e.Terminating || !e.Ready) {
			leaving = append(leaving, e.at)
		}
	}
	near := c.nearness(all)
	return c.usable(all, near), c.usable(local, nearness{}), leaving
}

// withUnused adds to a list the endpoints of all that are not used. It is sorted.
func withUnused(list []netip.AddrPort, all, used []endpoint) []netip.AddrPort {
	list = slices.Clone(list)
	for _, e := range all {
		if !slices.ContainsFunc(used, func(u endpoint) bool { return u.at == e.at }) {
			list = append(list, e.at)
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// namedEndpoints is every endpoint that slices name for a port, by address and number. Of two remarks about one, the more favourable counts.
func (c *cluster) namedEndpoints(s *model.Service, p model.ServicePort, v6 bool) (all []endpoint) {
	best := map[netip.AddrPort]endpoint{}
	for _, slice := range c.slices[s.ID] {
		number := uint16(0)
		for _, sp := range slice.Ports {
			if sp.Name == p.Name && sp.Protocol == p.Protocol && number == 0 {
				number = sp.Port
			}
		}
		for i := range slice.Endpoints {
			e := endpoint{Endpoint: &slice.Endpoints[i], at: netip.AddrPortFrom(slice.Endpoints[i].Addr, number)}
			e.local = c.node != "" && e.NodeName == c.node
			if number == 0 || slice.IPv6 != v6 || e.Addr.Is6() != v6 {
				continue
			}
			if other, twice := best[e.at]; !twice || e.favour() > other.favour() {
				best[e.at] = e
			}
		}
	}
	for _, e := range best {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b endpoint) int { return a.at.Compare(b.at) })
	return all
}

// favour orders remarks about one endpoint: first whether it stays, then whether it is ready, serves, and is local.
func (e endpoint) favour() (n int) {
	for i, yes := range []bool{e.local, e.Serving, e.Ready, !e.Terminating} {
		if yes {
			n += 1 << i
		}
	}
	return n
}

// nearness is what hints restrict a node to. The zero value is no restriction.
type nearness struct{ node, zone string }

// hinted: a ready endpoint has a hint for this node or zone.
func (n nearness) hinted(e *model.Endpoint) bool {
	switch {
	case n.node != "":
		return slices.Contains(e.ForNodes, n.node)
	case n.zone != "":
		return slices.Contains(e.ForZones, n.zone)
	}
	return true
}

// placed: an endpoint that terminates has no hint, and its place counts.
func (n nearness) placed(e *model.Endpoint) bool {
	return n == nearness{} || n.node != "" && e.NodeName == n.node || n.node == "" && e.Zone == n.zone
}

// nearness is by node if every ready endpoint has hints for nodes, and one has this node's; else by zone under the same condition.
func (c *cluster) nearness(all []endpoint) nearness {
	zone := ""
	for _, n := range c.nodes {
		if n.Name == c.node {
			zone = n.Zone
		}
	}
	holds := func(hints func(*model.Endpoint) []string, name string) bool {
		some, every := false, true
		for _, e := range all {
			if e.Ready {
				list := hints(e.Endpoint)
				some, every = some || slices.Contains(list, name), every && len(list) > 0
			}
		}
		return name != "" && some && every
	}
	switch {
	case holds(func(e *model.Endpoint) []string { return e.ForNodes }, c.node):
		return nearness{node: c.node}
	case holds(func(e *model.Endpoint) []string { return e.ForZones }, zone):
		return nearness{zone: zone}
	}
	return nearness{}
}

// usable are the ready endpoints that are near. Those that terminate and serve are usable if no other is, or if the node keeps them.
func (c *cluster) usable(all []endpoint, near nearness) (list []endpoint) {
	for _, e := range all {
		if e.Ready && near.hinted(e.Endpoint) {
			list = append(list, e)
		}
	}
	ready := len(list)
	for _, e := range all {
		last := e.Serving && e.Terminating && !(e.Ready && near.hinted(e.Endpoint))
		if last && (ready == 0 || c.cfg.KeepTerminating && near.placed(e.Endpoint)) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b endpoint) int { return a.at.Compare(b.at) })
	return list
}
