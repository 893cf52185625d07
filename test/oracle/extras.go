package oracle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

// Extras are what some worlds have beside what all have; the zero value is none of it.
type Extras struct {
	Hints           bool         // nodes have zones, and endpoints hints for zones and nodes
	KeepTerminating bool         // endpoints that terminate and serve are used beside ready ones, if the agent is configured so
	NodePortsAt     []netip.Addr // nodes' addresses that node ports are served on; nil: all
	Thieves         bool         // Services have ages, and name addresses of nodes, pods and other Services as their own
}

// NewWorldWithExtras is NewWorldOf with extras from a separate generator of the same seed: all other draws are the same.
func NewWorldWithExtras(seed uint64, families Families) *World {
	w := NewWorldOf(seed, families)
	w.extra = rand.New(rand.NewPCG(seed, 1))
	w.Extras.Hints = w.extra.IntN(2) == 0
	w.Extras.KeepTerminating = w.extra.IntN(3) == 0
	if w.extra.IntN(3) == 0 {
		w.Extras.NodePortsAt = slices.Clone(w.Nodes[w.extra.IntN(len(w.Nodes))].InternalIPs)
	}
	w.Extras.Thieves = w.extra.IntN(3) == 0
	for i, n := range w.Nodes {
		if w.Extras.Hints && w.extra.IntN(6) > 0 {
			n.Zone = []string{"a", "b", "a"}[i]
		}
	}
	return w
}

// steal gives a Service an age, and sometimes another owner's address.
func (w *World) steal(svc *model.Service) {
	if !w.Extras.Thieves {
		return
	}
	if svc.Created.IsZero() {
		svc.Created = time.Unix(int64(1+w.extra.IntN(5)), 0)
	}
	if w.extra.IntN(2) == 0 {
		return
	}
	at := w.Nodes[w.extra.IntN(len(w.Nodes))].InternalIPs[0]
	switch n := 10 + 1 + w.extra.IntN(maxServices); w.extra.IntN(3) {
	case 0:
		at = w.families.pickAddr(fmt.Sprintf("10.96.0.%d", n), fmt.Sprintf("fd00:96::%d", n))
	case 1:
		ids := slices.SortedFunc(maps.Keys(w.Pods), model.PodID.Compare)
		at = w.Pods[ids[w.extra.IntN(len(ids))]].IPs[0]
	}
	if slices.Contains(svc.ClusterIPs, at) {
		return // its own: nothing is stolen
	}
	if svc.Type == model.LoadBalancer && w.extra.IntN(2) == 0 {
		svc.LoadBalancerIPs = append(svc.LoadBalancerIPs, model.LoadBalancerIP{Addr: at})
	} else {
		svc.ExternalIPs = append(svc.ExternalIPs, at)
	}
}

// hint gives an endpoint the zone of its node, and a hint more often than not.
func (w *World) hint(ep *model.Endpoint) {
	if !w.Extras.Hints {
		return
	}
	for _, n := range w.Nodes {
		if n.Name == ep.NodeName {
			ep.Zone = n.Zone
		}
	}
	if w.extra.IntN(8) > 0 {
		ep.ForZones = [][]string{{"a"}, {"b"}, {"a", "b"}}[w.extra.IntN(3)]
	}
	if w.extra.IntN(3) > 0 {
		ep.ForNodes = []string{w.Nodes[w.extra.IntN(len(w.Nodes))].Name}
	}
}

// servesNodePorts reports whether a node's address has node ports.
func (c *Cluster) servesNodePorts(a netip.Addr) bool {
	return c.NodePortsAt == nil || slices.Contains(c.NodePortsAt, a)
}

// nobody reports that an address is a node's, and the port a node port that is not served there: the node itself refuses.
func (c *Cluster) nobody(dst netip.AddrPort, proto model.Protocol) bool {
	if c.servesNodePorts(dst.Addr()) {
		return false
	}
	isNode := slices.ContainsFunc(c.Nodes, func(n *model.Node) bool { return slices.Contains(n.Addrs(), dst.Addr()) })
	return isNode && slices.ContainsFunc(c.Services, func(s *model.Service) bool {
		return served(s, dst.Addr()) && slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return p.NodePort == dst.Port() && p.Protocol == proto })
	})
}

// narrowed is the part of a service's endpoints that a node's policy Cluster uses: by hints for the node, else for its zone (row 14),
// while endpoints are ready; kept ones beside them.
func (c *Cluster) narrowed(all map[netip.AddrPort]model.Endpoint, name string) []netip.AddrPort {
	zone := ""
	for _, n := range c.Nodes {
		if n.Name == name {
			zone = n.Zone
		}
	}
	forNode := c.ready(all, func(ep model.Endpoint) bool { return slices.Contains(ep.ForNodes, name) })
	forZone := c.ready(all, func(ep model.Endpoint) bool { return zone != "" && slices.Contains(ep.ForZones, zone) })
	everybody := c.ready(all, func(model.Endpoint) bool { return true })
	nodeHints := c.ready(all, func(ep model.Endpoint) bool { return len(ep.ForNodes) > 0 })
	zoneHints := c.ready(all, func(ep model.Endpoint) bool { return len(ep.ForZones) > 0 })
	use, near := everybody, func(model.Endpoint) bool { return true }
	switch {
	case len(nodeHints) == len(everybody) && len(forNode) > 0:
		use, near = forNode, func(ep model.Endpoint) bool { return ep.NodeName == name }
	case len(zoneHints) == len(everybody) && len(forZone) > 0:
		use, near = forZone, func(ep model.Endpoint) bool { return ep.Zone == zone }
	}
	return c.withTerminating(use, all, near)
}

// ready are the ready endpoints that a question is answered with yes for.
func (c *Cluster) ready(all map[netip.AddrPort]model.Endpoint, is func(model.Endpoint) bool) []netip.AddrPort {
	var out []netip.AddrPort
	for at, ep := range all {
		if ep.Ready && is(ep) {
			out = append(out, at)
		}
	}
	return out
}

// withTerminating adds endpoints that terminate and serve: all of the candidates if there is no other (row 12), the local
// ones if they are kept.
func (c *Cluster) withTerminating(ready []netip.AddrPort, all map[netip.AddrPort]model.Endpoint, near func(model.Endpoint) bool) []netip.AddrPort {
	out := slices.Clone(ready)
	for at, ep := range all {
		if !ep.Ready && ep.Serving && ep.Terminating && (len(ready) == 0 || c.KeepTerminating && near(ep)) {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}
