// Package serving turns Services, EndpointSlices, Nodes and Pods into the frontends of one node: for each address, port and protocol that a
// client may dial, the endpoints that get its connections, and their shares.
//
// Invariant: the package shares no code with the Service processor, the renderers and the descriptors, so that a fault of theirs is no fault
// here. It reads the model that sources emit, and docs/services.md.
//
//	Services ─▶ addresses without another owner ─▶ frontends without an older Service ─┐
//	EndpointSlices ─▶ endpoints of a port, each once ─▶ by traffic policy, hints ──────┴─▶ Frontend
package serving

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// Engine is the part of VPP that translates an address family.
type Engine string

// The engines. None: the family is not translated.
const (
	None  Engine = ""
	NAT44 Engine = "nat44"
	CNAT  Engine = "cnat"
)

// most is the number of endpoints of a port that an engine can have.
var most = map[Engine]int{NAT44: 253, CNAT: 8192} // read only

// Config is what the agent of the node is configured with, as far as frontends depend on it. The zero value is an agent without flags.
type Config struct {
	// Renderer is auto (the default), nat44 or cnat.
	Renderer  string
	ProxyName string
	// KeepTerminating: endpoints that terminate and serve get new connections beside ready ones.
	KeepTerminating bool
	// LocalWeight is how many times the share of an endpoint on another node one on this node gets; 0: 1.
	LocalWeight      int
	NoExternalIPs    bool
	ExternalIPCIDRs  []netip.Prefix
	NodePorts        []netip.Prefix // ranges of the node's addresses with node ports; nil: all
	NodePortsPrimary bool           // the node's first address of each family alone has node ports
	ServiceCIDRs     []netip.Prefix // beside those of ServiceCIDR objects
	APIServers       []netip.Addr   // beside the endpoints of Service default/kubernetes
	// NoSNAT: pods keep their addresses outside the cluster. VXLANPort is the UDP port of the overlay; 0: 4789.
	NoSNAT    bool
	VXLANPort uint16
	Timeouts  Timeouts
	// Uplink is the addresses of VPP's interface to other nodes, with their networks.
	Uplink []netip.Prefix
}

// EngineOf is the engine of an address's family.
func (c *Config) EngineOf(a netip.Addr) Engine {
	switch {
	case c.Renderer == "cnat":
		return CNAT
	case a.Is4():
		return NAT44
	case c.Renderer == "nat44":
		return None
	}
	return CNAT
}

// At is an address, port and protocol that clients dial.
type At struct {
	Addr     netip.Addr
	Port     uint16
	Protocol model.Protocol
}

// String is "tcp 10.96.0.10:80".
func (a At) String() string {
	return strings.ToLower(a.Protocol.String()) + " " + netip.AddrPortFrom(a.Addr, a.Port).String()
}

// Compare orders by address, port and protocol.
func (a At) Compare(o At) int {
	return cmp.Or(a.Addr.Compare(o.Addr), cmp.Compare(a.Port, o.Port), cmp.Compare(a.Protocol, o.Protocol))
}

// Fate is what the first packet of a connection to a frontend meets.
type Fate string

// The fates.
const (
	Balanced Fate = "balanced" // an endpoint gets it
	Silent   Fate = "dropped"
	Rejected Fate = "rejected"
)

// Frontend is one address, port and protocol of a Service.
type Frontend struct {
	At
	Service model.ServiceID
	Fate    Fate
	// Why is the reason for the fate.
	Why string
	// Backends get new connections, by their weights. Sorted; none unless the fate is Balanced.
	Backends []Backend
	// Most is how many of the Backends the node uses; 0: all.
	Most int
	// Leaving are endpoints of TCP that terminate or are not ready, and with external policy Local those that other nodes serve. They may keep
	// connections, and get no new ones unless they are Backends. Sorted.
	Leaving []netip.AddrPort
	// Hides: the endpoint sees an address of VPP instead of the client's. Otherwise it does so if a pod reaches itself.
	Hides bool
	// Sticky: a client reaches the same endpoint again.
	Sticky bool
	// Clients are the only sources that may use the frontend; nil: all may.
	Clients []netip.Prefix
	// Refused is why the agent serves the frontend on no node of this kind; "": it does. VPP then rejects.
	Refused string
}

// Backend is an endpoint that gets new connections.
type Backend struct {
	At     netip.AddrPort
	Local  bool
	Weight int
}

// Node is the frontends of one node.
type Node struct {
	// Frontends are sorted by At.
	Frontends []*Frontend
	// Rejecting are the addresses at which packets are rejected that no frontend translates, each of one Service.
	Rejecting map[netip.Addr]model.ServiceID
	// Dropping are the ranges of cluster IPs whose other addresses are dropped.
	Dropping []netip.Prefix
	// Own are this node's addresses; Occupied the addresses of pods, endpoints and nodes.
	Own      []netip.Addr
	Occupied map[netip.Addr]bool
	// PodCIDRs are the ranges of this node's pods; Remote those of other nodes.
	PodCIDRs, Remote []netip.Prefix
	// Pods are the addresses of this node's pods, sorted.
	Pods []PodAddr
	// Services are all that the agent serves, also those without a frontend. Sorted.
	Services []model.ServiceID
}

// PodAddr is an address of a pod.
type PodAddr struct {
	Addr netip.Addr
	ID   model.PodID
}

// Read reads objects for one node. The order of objects has no meaning.
func Read(node string, cfg Config, objects []model.Object) *Node {
	c := &cluster{node: node, cfg: cfg, slices: map[model.ServiceID][]*model.EndpointSlice{}}
	for _, o := range objects {
		switch o := o.(type) {
		case *model.Service:
			c.services = append(c.services, o)
		case *model.EndpointSlice:
			c.slices[o.Service] = append(c.slices[o.Service], o)
		case *model.Node:
			c.nodes = append(c.nodes, o)
		case *model.Pod:
			if !o.HostNetwork && !o.Finished {
				c.pods = append(c.pods, o)
			}
		case *model.ServiceCIDR:
			c.ranges = append(c.ranges, o.CIDRs...)
		}
	}
	c.ranges = append(c.ranges, cfg.ServiceCIDRs...)
	slices.SortFunc(c.services, (*model.Service).CompareAge)
	out := &Node{Occupied: map[netip.Addr]bool{}, Rejecting: map[netip.Addr]model.ServiceID{}}
	c.describe(out)
	for _, s := range c.services {
		if c.serves(s) {
			out.Services = append(out.Services, s.ID)
			c.frontends(out, s)
		}
	}
	slices.SortFunc(out.Frontends, func(a, b *Frontend) int { return a.At.Compare(b.At) })
	slices.SortFunc(out.Services, model.ServiceID.Compare)
	slices.SortFunc(out.Pods, func(a, b PodAddr) int { return cmp.Or(a.Addr.Compare(b.Addr), a.ID.Compare(b.ID)) })
	return out
}

// cluster is all objects of one moment. Services are sorted by age, the oldest first.
type cluster struct {
	node     string
	cfg      Config
	services []*model.Service
	slices   map[model.ServiceID][]*model.EndpointSlice
	nodes    []*model.Node
	pods     []*model.Pod
	ranges   []netip.Prefix // of cluster IPs
}

// describe fills in what does not depend on Services.
func (c *cluster) describe(out *Node) {
	for _, n := range c.nodes {
		for _, a := range n.Addrs() {
			out.Occupied[a] = true
		}
		if n.Name == c.node {
			out.Own, out.PodCIDRs = n.Addrs(), n.PodCIDRs
		} else {
			out.Remote = append(out.Remote, n.PodCIDRs...)
		}
	}
	for _, p := range c.pods {
		for _, a := range p.IPs {
			out.Occupied[a] = true
			if p.NodeName == c.node {
				out.Pods = append(out.Pods, PodAddr{a, p.ID})
			}
		}
	}
	for _, list := range c.slices {
		for _, slice := range list {
			for i := range slice.Endpoints {
				out.Occupied[slice.Endpoints[i].Addr] = true
			}
		}
	}
	for _, r := range c.ranges {
		if c.cfg.EngineOf(r.Addr()) == NAT44 { // cnat has no such routes
			out.Dropping = append(out.Dropping, r.Masked())
		}
	}
}

// serves reports whether the agent serves a Service at all.
func (c *cluster) serves(s *model.Service) bool {
	return s.ProxyName == c.cfg.ProxyName && s.Type != model.ExternalName && !s.Headless && len(s.ClusterIPs) > 0
}

// portsOf are the ports of a Service by name; of two with one name the first.
func portsOf(s *model.Service) (ports []model.ServicePort) {
	for i, p := range s.Ports {
		if !slices.ContainsFunc(s.Ports[:i], func(o model.ServicePort) bool { return o.Name == p.Name }) {
			ports = append(ports, p)
		}
	}
	slices.SortFunc(ports, func(a, b model.ServicePort) int { return strings.Compare(a.Name, b.Name) })
	return ports
}

// frontends adds the frontends of a Service, and its addresses.
func (c *cluster) frontends(out *Node, s *model.Service) {
	inner := slices.DeleteFunc(slices.Clone(s.ClusterIPs), func(a netip.Addr) bool { return c.owner(s, a, false) != "" })
	plain, balancer := c.external(s)
	kept := func(list []netip.Addr) []netip.Addr {
		return slices.DeleteFunc(list, func(a netip.Addr) bool { return c.owner(s, a, true) != "" })
	}
	plain, balancer = kept(plain), kept(balancer)
	for _, list := range [][]netip.Addr{inner, plain, balancer} {
		for _, a := range list {
			if _, known := out.Rejecting[a]; !known && c.cfg.EngineOf(a) != None && !c.isNode(a) && !c.isPod(a) {
				out.Rejecting[a] = s.ID // the oldest
			}
		}
	}
	seen := map[At]bool{}
	add := func(a netip.Addr, number uint16, p model.ServicePort, outer, node bool) {
		at := At{a, number, p.Protocol}
		if seen[at] || c.older(s, at, outer, node) {
			return
		}
		seen[at] = true
		f := &Frontend{At: at, Service: s.ID}
		c.fill(f, s, p, outer, slices.Contains(balancer, a) && !node)
		out.Frontends = append(out.Frontends, f)
	}
	for _, p := range portsOf(s) {
		for _, a := range inner {
			add(a, p.Port, p, false, false)
		}
		for _, a := range slices.Concat(plain, balancer) {
			add(a, p.Port, p, true, false)
		}
		for _, a := range c.nodePortAddrs() {
			if p.NodePort != 0 && hasFamily(s.ClusterIPs, a) {
				add(a, p.NodePort, p, true, true)
			}
		}
	}
}

func (c *cluster) isNode(a netip.Addr) bool {
	return slices.ContainsFunc(c.nodes, func(n *model.Node) bool { return slices.Contains(n.Addrs(), a) })
}

// fill completes a frontend: the endpoints of its traffic policy, and the rights of clients.
func (c *cluster) fill(f *Frontend, s *model.Service, p model.ServicePort, outer, balancer bool) {
	engine := c.cfg.EngineOf(f.Addr)
	f.Refused = refused(s, p, engine, f.Addr)
	if balancer {
		f.Clients = clientsOf(s, f.Addr)
		if len(f.Clients) > 0 && f.Refused == "" && engine == CNAT {
			f.Refused = fmt.Sprintf("%s cannot check loadBalancerSourceRanges", engine)
		}
		if c.ownWithin(f.Clients) { // a node that has the address, too, may call from it
			f.Clients = append(f.Clients, netip.PrefixFrom(f.Addr, f.Addr.BitLen()))
		}
	}
	f.Sticky = s.SessionAffinityTimeout > 0
	everywhere, here, leaving := c.portEndpoints(s, p, f.Addr.Is6())
	policy, set := s.InternalTrafficPolicy, everywhere
	if outer {
		policy = s.ExternalTrafficPolicy
		f.Hides = policy == model.PolicyCluster
	}
	f.Fate, f.Why = Balanced, fmt.Sprintf("%d endpoints", len(everywhere))
	switch {
	case len(everywhere) == 0 && (policy != model.PolicyLocal || len(here) == 0):
		f.Fate, f.Why = Rejected, "no endpoint"
		return
	case policy == model.PolicyLocal && len(here) > 0:
		set, f.Why = here, fmt.Sprintf("%d endpoints on this node, traffic policy Local", len(here))
	case policy == model.PolicyLocal && !outer:
		f.Fate, f.Why = Silent, "internalTrafficPolicy Local without an endpoint on this node"
		return
	}
	f.Leaving = leaving
	if outer && policy == model.PolicyLocal && len(here) > 0 {
		f.Leaving = withUnused(leaving, everywhere, here)
	}
	if n := most[engine]; len(set) > n {
		f.Most = n
	}
	for _, e := range set {
		f.Backends = append(f.Backends, Backend{At: e.at, Local: e.local, Weight: 1})
	}
	c.weigh(f, engine)
}

// weigh gives endpoints of this node their multiple.
func (c *cluster) weigh(f *Frontend, engine Engine) {
	locals := 0
	for _, b := range f.Backends {
		if b.Local {
			locals++
		}
	}
	others := len(f.Backends) - locals
	room := 255 // VPP adds weights of nat44 in 8 bits
	if engine == CNAT {
		room = 256 // paths, of which each counts once
	}
	if c.cfg.LocalWeight < 2 || locals == 0 || f.Most > 0 || others == 0 {
		return
	}
	weight := max(1, min(c.cfg.LocalWeight, (room-others)/locals))
	for i := range f.Backends {
		if f.Backends[i].Local {
			f.Backends[i].Weight = weight
		}
	}
}

// refused is why no part of a port is served by an engine; "": it is.
func refused(s *model.Service, p model.ServicePort, engine Engine, a netip.Addr) string {
	asked := s.Annotations[model.AnnotationPrefix+"service-renderer"]
	switch {
	case engine == None:
		return "IPv6 has no renderer on this node"
	case asked != "" && asked != string(engine):
		return fmt.Sprintf("the Service asks for renderer %s, and this family belongs to %s", asked, engine)
	case p.Protocol == model.TCP, p.Protocol == model.UDP:
		return ""
	case p.Protocol == model.SCTP && engine == CNAT && a.Is4():
		return ""
	}
	return fmt.Sprintf("%s does not translate %s at %s", engine, p.Protocol, a)
}

// clientsOf are the ranges of a load balancer's address. Nil: all clients, because no range is of its family, or one range has all addresses.
func clientsOf(s *model.Service, a netip.Addr) (list []netip.Prefix) {
	for _, r := range s.LoadBalancerSourceRanges {
		if r.Addr().Is4() != a.Is4() {
			continue
		}
		if r.Bits() == 0 {
			return nil
		}
		list = append(list, r.Masked())
	}
	return list
}

func (c *cluster) ownWithin(list []netip.Prefix) bool {
	for _, n := range c.nodes {
		for _, a := range n.Addrs() {
			if n.Name == c.node && slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) }) {
				return true
			}
		}
	}
	return false
}
