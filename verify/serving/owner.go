package serving

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// apiService is the Service whose endpoints are the API server.
var apiService = model.ServiceID{Namespace: "default", Name: "kubernetes"} // read only

// owner names the owner of an address that precedes a Service (docs/services.md, Owners of addresses); "": none does. Outer: the Service names
// it as external or load-balancer IP.
func (c *cluster) owner(s *model.Service, a netip.Addr, outer bool) string {
	for _, n := range c.nodes {
		if slices.Contains(n.Addrs(), a) {
			return "node " + n.Name
		}
	}
	if slices.ContainsFunc(c.cfg.Uplink, func(p netip.Prefix) bool { return p.Addr() == a }) {
		return "this node's uplink"
	}
	if s.ID != apiService && c.isAPIServer(a) {
		return "the API server"
	}
	if !outer {
		return ""
	}
	for _, other := range c.services {
		if other.ID != s.ID && c.claimsClusterIPs(other) && slices.Contains(other.ClusterIPs, a) {
			return "Service " + other.ID.String()
		}
	}
	if c.isPod(a) {
		return "a pod"
	}
	return ""
}

// claimsClusterIPs: a Service that another proxy serves owns its cluster IPs nevertheless.
func (c *cluster) claimsClusterIPs(s *model.Service) bool {
	return c.serves(s) || s.ProxyName != c.cfg.ProxyName
}

func (c *cluster) isAPIServer(a netip.Addr) bool {
	for _, slice := range c.slices[apiService] {
		for i := range slice.Endpoints {
			if slice.Endpoints[i].Addr == a {
				return true
			}
		}
	}
	return slices.Contains(c.cfg.APIServers, a)
}

func (c *cluster) isPod(a netip.Addr) bool {
	return slices.ContainsFunc(c.pods, func(p *model.Pod) bool { return slices.Contains(p.IPs, a) })
}

// external returns the external IPs that the node's configuration permits, and the load-balancer IPs, both of the families in which the Service
// has a cluster IP.
func (c *cluster) external(s *model.Service) (plain, balancer []netip.Addr) {
	for _, a := range s.ExternalIPs {
		if hasFamily(s.ClusterIPs, a) && c.permits(a) {
			plain = append(plain, a)
		}
	}
	for _, lb := range s.LoadBalancerIPs {
		if s.Type == model.LoadBalancer && !lb.Proxy && hasFamily(s.ClusterIPs, lb.Addr) {
			balancer = append(balancer, lb.Addr)
		}
	}
	return plain, balancer
}

// permits reports whether an address may be an external IP at all.
func (c *cluster) permits(a netip.Addr) bool {
	within := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	switch {
	case c.cfg.NoExternalIPs:
		return false
	case len(c.cfg.ExternalIPCIDRs) > 0:
		return within(c.cfg.ExternalIPCIDRs)
	}
	for _, n := range c.nodes {
		if within(n.PodCIDRs) {
			return false
		}
	}
	return !within(c.ranges) && !within(c.cfg.Uplink)
}

func hasFamily(list []netip.Addr, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
}

// older reports that a frontend belongs to another Service: one whose cluster IP it is, else the oldest that names it.
func (c *cluster) older(s *model.Service, at At, outer, node bool) bool {
	for _, other := range c.services { // the oldest first
		if other.ID == s.ID {
			if !outer {
				return false
			}
			continue
		}
		before := other.CompareAge(s) < 0
		for _, p := range portsOf(other) {
			switch {
			case p.Protocol != at.Protocol:
			case node && p.NodePort == at.Port && before && c.serves(other):
				return true
			case p.Port != at.Port || node:
			case c.claimsClusterIPs(other) && slices.Contains(other.ClusterIPs, at.Addr):
				if outer || before {
					return true
				}
			case outer && before && c.serves(other):
				plain, balancer := c.external(other)
				if slices.Contains(plain, at.Addr) || slices.Contains(balancer, at.Addr) {
					return true
				}
			}
		}
	}
	return false
}

// nodePortAddrs are this node's addresses with node ports.
func (c *cluster) nodePortAddrs() (list []netip.Addr) {
	for _, n := range c.nodes {
		if n.Name != c.node {
			continue
		}
		for _, a := range n.Addrs() {
			switch {
			case c.cfg.NodePortsPrimary && hasFamily(list, a):
			case len(c.cfg.NodePorts) > 0 && !slices.ContainsFunc(c.cfg.NodePorts, func(p netip.Prefix) bool { return p.Contains(a) }):
			default:
				list = append(list, a)
			}
		}
	}
	return list
}
