// Package oracle turns Kubernetes objects and a packet into the fate the Kubernetes documents promise: a literal, slow
// reading of the Service semantics (kube-proxy v1.36), written without looking at how the agent does it.
//
// Invariant: it shares no code with the agent beyond the nouns of package model; every answer scans all objects.
package oracle

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// Fate is what the client of a packet experiences.
type Fate string

// The fates.
const (
	Delivered Fate = "delivered"
	Rejected  Fate = "rejected"
	Dropped   Fate = "dropped"
)

// Class is the kind of sender: a pod (P), the node itself or a host-network pod (H), or an outside client (X).
type Class byte

// The classes of traffic.
const (
	Pod     Class = 'P'
	Host    Class = 'H'
	Outside Class = 'X'
)

// Packet is the first packet of a connection.
type Packet struct {
	Class Class
	Node  string // where it enters the cluster
	Src   netip.Addr
	Dst   netip.AddrPort
	Proto model.Protocol
}

// Expectation is what must happen.
type Expectation struct {
	Fate     Fate
	Backends []netip.AddrPort // every backend that may be chosen, sorted; delivered only
	// KeepsSource: the backend must see the client's own address (a pod calling itself is exempt).
	KeepsSource bool
	Why         string
	// Service is the service that decided; zero if none did.
	Service model.ServiceID
	// External: the frontend was an external one (external IP, load balancer, node port).
	External bool
	// Policy is the traffic policy that governed.
	Policy model.TrafficPolicy
	// Restricted: source ranges say who may use the frontend.
	Restricted bool
	// Outside: the proxy takes the client for one outside its node, as every client of another node's address.
	Outside bool
}

// Cluster is everything there is, in any order.
type Cluster struct {
	Services []*model.Service
	Slices   []*model.EndpointSlice
	Nodes    []*model.Node
	Pods     []*model.Pod
	CIDRs    []netip.Prefix // service CIDRs
	Extras
}

// Expect is the fate Kubernetes promises to the packet.
func (c *Cluster) Expect(p Packet) Expectation {
	if svc, port, external := c.frontend(p.Dst, p.Proto); svc != nil {
		restricted, may := sourceRanges(svc, port, p)
		e := Expectation{Fate: Dropped, Why: "outside the source ranges", Service: svc.ID, External: external}
		if may {
			e = c.balance(p, c.balancer(p), svc, port, external)
		}
		e.Restricted = restricted
		return e
	}
	if c.nobody(p.Dst, p.Proto) {
		return Expectation{Fate: Rejected, Why: "a node's address without node ports"}
	}
	for _, svc := range c.Services {
		if served(svc, p.Dst.Addr()) && slices.Contains(svc.ClusterIPs, p.Dst.Addr()) {
			return Expectation{Fate: Rejected, Why: "cluster IP without such a port", Service: svc.ID}
		}
	}
	for _, cidr := range c.CIDRs {
		if cidr.Contains(p.Dst.Addr()) {
			return Expectation{Fate: Dropped, Why: "service CIDR, address not allocated"}
		}
	}
	return Expectation{Fate: Delivered, Backends: []netip.AddrPort{p.Dst}, Why: "not a service address"}
}

// served reports whether the proxy of an address's family looks at the service at all (rows 7, 8, 9, 21).
func served(s *model.Service, dst netip.Addr) bool {
	return s.Type != model.ExternalName && !s.Headless && s.ProxyName == "" &&
		slices.ContainsFunc(s.ClusterIPs, func(a netip.Addr) bool { return a.Is6() == dst.Is6() })
}

// frontend finds the service port behind an address. Of Services that share it, the one whose cluster IP it is has it, else the
// oldest, else the first by name.
func (c *Cluster) frontend(dst netip.AddrPort, proto model.Protocol) (*model.Service, model.ServicePort, bool) {
	var found *model.Service
	var foundPort model.ServicePort
	var foundExternal bool
	for _, svc := range c.Services {
		if !served(svc, dst.Addr()) || found != nil && precedes(found, svc, dst.Addr()) {
			continue
		}
		for _, port := range svc.Ports {
			if port.Protocol != proto {
				continue
			}
			external, ok := c.matches(svc, port, dst)
			if ok {
				found, foundPort, foundExternal = svc, port, external
				break
			}
		}
	}
	return found, foundPort, foundExternal
}

func precedes(a, b *model.Service, dst netip.Addr) bool {
	if x, y := slices.Contains(a.ClusterIPs, dst), slices.Contains(b.ClusterIPs, dst); x != y {
		return x
	}
	if !a.Created.Equal(b.Created) {
		return a.Created.Before(b.Created)
	}
	return a.ID.Compare(b.ID) < 0
}

// owned reports that an address is a node's, a pod's or another Service's cluster IP: no Service has it as external address. An external
// IP may not even be in the ranges of pods and cluster IPs.
func (c *Cluster) owned(svc *model.Service, a netip.Addr, externalIP bool) bool {
	for _, n := range c.Nodes {
		if slices.Contains(n.Addrs(), a) || externalIP && slices.ContainsFunc(n.PodCIDRs, func(r netip.Prefix) bool { return r.Contains(a) }) {
			return true
		}
	}
	for _, p := range c.Pods {
		if slices.Contains(p.IPs, a) && !p.HostNetwork && !p.Finished {
			return true
		}
	}
	for _, other := range c.Services {
		if other.ID != svc.ID && other.Type != model.ExternalName && slices.Contains(other.ClusterIPs, a) {
			return true
		}
	}
	return externalIP && slices.ContainsFunc(c.CIDRs, func(r netip.Prefix) bool { return r.Contains(a) })
}

func (c *Cluster) matches(svc *model.Service, port model.ServicePort, dst netip.AddrPort) (external, ok bool) {
	if dst.Port() == port.Port {
		if slices.Contains(svc.ClusterIPs, dst.Addr()) {
			return false, true
		}
		if slices.Contains(svc.ExternalIPs, dst.Addr()) && !c.owned(svc, dst.Addr(), true) {
			return true, true
		}
		for _, lb := range svc.LoadBalancerIPs {
			if lb.Addr == dst.Addr() && !lb.Proxy && !c.owned(svc, dst.Addr(), false) {
				return true, true
			}
		}
	}
	if port.NodePort != 0 && dst.Port() == port.NodePort && c.servesNodePorts(dst.Addr()) {
		for _, n := range c.Nodes {
			if slices.Contains(n.Addrs(), dst.Addr()) {
				return true, true
			}
		}
	}
	return false, false
}

// sourceRanges reports whether only some clients may use a frontend, and whether this one may (row 18).
func sourceRanges(svc *model.Service, port model.ServicePort, p Packet) (restricted, may bool) {
	balancers := false
	for _, lb := range svc.LoadBalancerIPs {
		balancers = balancers || lb.Addr == p.Dst.Addr() && !lb.Proxy && p.Dst.Port() == port.Port
	}
	for _, r := range svc.LoadBalancerSourceRanges {
		if !balancers || r.Addr().Is6() != p.Dst.Addr().Is6() {
			continue
		}
		if r.Bits() == 0 {
			return false, true
		}
		restricted, may = true, may || r.Contains(p.Src)
	}
	return restricted, may || !restricted
}

// balance applies the traffic policies (rows 1, 12, 15, 15b, 15c, 16).
func (c *Cluster) balance(p Packet, node string, svc *model.Service, port model.ServicePort, external bool) Expectation {
	everywhere := c.endpoints(svc, port, node, false, p.Dst.Addr().Is6())
	here := c.endpoints(svc, port, node, true, p.Dst.Addr().Is6())
	policy := svc.InternalTrafficPolicy
	if external {
		policy = svc.ExternalTrafficPolicy
	}
	e := Expectation{Service: svc.ID, External: external, Policy: policy, Outside: p.Class == Outside || node != p.Node}
	set := everywhere
	if policy == model.PolicyLocal && !(external && !e.Outside) {
		set = here
	}
	switch {
	case len(set) > 0:
		e.Fate, e.Backends, e.Why = Delivered, set, "balanced"
		e.KeepsSource = p.Class == Pod && (!external || policy == model.PolicyLocal) ||
			e.Outside && external && policy == model.PolicyLocal
	case len(everywhere) > 0:
		e.Fate, e.Why = Dropped, "Local policy, no endpoint on this node"
	default:
		e.Fate, e.Why = Rejected, "no endpoints"
	}
	return e
}

// balancer is the node whose proxy handles the packet: the one whose address is dialled, else where it enters.
func (c *Cluster) balancer(p Packet) string {
	for _, n := range c.Nodes {
		if slices.Contains(n.Addrs(), p.Dst.Addr()) {
			return n.Name
		}
	}
	return p.Node
}

// endpoints are the eligible endpoints of a service port on a node: the ready ones, or, if no endpoint of the set is ready, those
// serving while terminating (row 12), of one family. Of all endpoints, as hints have it, or of those on the node.
func (c *Cluster) endpoints(svc *model.Service, port model.ServicePort, node string, here, v6 bool) []netip.AddrPort {
	all := c.merged(svc, port, v6)
	if !here {
		return c.narrowed(all, node)
	}
	maps.DeleteFunc(all, func(_ netip.AddrPort, ep model.Endpoint) bool { return ep.NodeName != node })
	every := func(model.Endpoint) bool { return true }
	return c.withTerminating(c.ready(all, every), all, every)
}

// merged is every endpoint the slices of a family name, each once: of two words about one endpoint the one that does not terminate
// wins (row 12); otherwise a ready one, then a serving one.
func (c *Cluster) merged(svc *model.Service, port model.ServicePort, v6 bool) map[netip.AddrPort]model.Endpoint {
	out := map[netip.AddrPort]model.Endpoint{}
	for _, slice := range c.Slices {
		for _, sp := range slice.Ports {
			if slice.Service != svc.ID || slice.IPv6 != v6 || sp.Name != port.Name || sp.Protocol != port.Protocol {
				continue
			}
			for _, ep := range slice.Endpoints {
				at := netip.AddrPortFrom(ep.Addr, sp.Port)
				if old, twice := out[at]; !twice || rank(ep) > rank(old) {
					out[at] = ep
				}
			}
		}
	}
	return out
}

func rank(ep model.Endpoint) int {
	n := 0
	for bit, good := range []bool{ep.Serving, ep.Ready, !ep.Terminating} {
		if good {
			n |= 1 << bit
		}
	}
	return n
}
