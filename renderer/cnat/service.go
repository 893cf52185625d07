package cnat

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/adapter"
)

// Service returns all values of one Service on the given node: a Translation for each frontend with endpoints, and a reject route
// for each of its addresses. NodeIPs are the addresses of all nodes. Of the node, its addresses matter.
//
// Translations always have real addresses: packets that cnat does not translate meet the route below, which rejects them or is
// the node's own. VPP uses the flag of the first translation of an address, so that any other choice could be too late.
func Service(svc *renderer.ContivService, node renderer.NodeState, nodeIPs *renderer.IPAddresses, cfg Config) (kv.Values, []model.Note) {
	s := &rendering{svc: svc, node: node, nodeIPs: nodeIPs, cfg: cfg, values: kv.Values{}, notes: adapter.Notes{Of: svc.ID}}
	if svc.Renderer != "" && svc.Renderer != Name {
		for _, a := range slices.Concat(svc.ClusterIPs.Addrs(), svc.ExternalIPs.Addrs()) {
			if cfg.Has(a) {
				s.notes.Add(true, "address %s is not served: the service asks for %s, and this family is cnat's on this node", a, svc.Renderer)
			}
		}
	} else {
		s.renderPorts()
	}
	adapter.Refuse(s.values, svc, node.Refusal, nodeIPs, cfg.Has)
	return s.values, s.notes.List
}

type family struct{ served, v6 bool }

// renderPorts renders all ports of the Service in the served families.
func (s *rendering) renderPorts() {
	for _, name := range s.svc.PortNames() {
		for _, family := range []family{{s.cfg.IPv4, false}, {s.cfg.IPv6, true}} {
			if family.served {
				s.renderPort(name, s.svc.Ports[name], family.v6)
			}
		}
	}
}

// rendering is the state of one call of Service.
type rendering struct {
	svc     *renderer.ContivService
	node    renderer.NodeState
	nodeIPs *renderer.IPAddresses
	cfg     Config
	values  kv.Values
	notes   adapter.Notes
}

// addrsOfFamily returns the addresses of a family.
func addrsOfFamily(addrs *renderer.IPAddresses, v6 bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs.Addrs()), func(a netip.Addr) bool { return a.Is6() != v6 })
}

// renderPort renders one port of the service on every address of a family.
func (s *rendering) renderPort(name string, port *renderer.ServicePort, v6 bool) {
	clusterIPs, externalIPs := addrsOfFamily(s.svc.ClusterIPs, v6), addrsOfFamily(s.svc.ExternalIPs, v6)
	var nodes []netip.Addr
	if port.NodePort != 0 && len(clusterIPs) > 0 {
		nodes = slices.DeleteFunc(addrsOfFamily(s.nodeIPs, v6), s.anotherNodes)
	}
	switch {
	case len(clusterIPs)+len(externalIPs)+len(nodes) == 0:
		return
	case port.Protocol == renderer.SCTP && v6:
		s.notes.Add(true, "port %q (SCTP %d) is not served in IPv6: cnat translates SCTP in IPv4 only", name, port.Port)
		return
	case port.Protocol != renderer.SCTP && port.Protocol != renderer.TCP && port.Protocol != renderer.UDP:
		s.notes.Add(true, "port %q (%s %d) is not served: cnat translates TCP, UDP and SCTP only", name, port.Protocol, port.Port)
		return
	}
	s.conditions(v6)
	cluster := s.paths(name, s.svc.Backends[name], v6)
	local := s.paths(name, s.svc.Local(name), v6)
	internal := cluster
	if s.svc.InternalTrafficPolicy == renderer.NodeLocal {
		if internal = local; len(local) == 0 && len(cluster) > 0 {
			s.notes.Add(false, "cluster IPs are silent on this node: internalTrafficPolicy is Local and no endpoint is here")
			internal = discard(v6)
		}
	}
	for _, a := range clusterIPs {
		s.addTranslation(renderer.Frontend{IP: a, Port: port.Port, Protocol: port.Protocol}, false, internal)
	}
	if len(externalIPs)+len(nodes) == 0 {
		return
	}
	outside := s.external(cluster, local)
	for _, a := range externalIPs {
		switch {
		case s.anotherNodes(a):
		case adapter.Restricted(s.svc, a):
			s.notes.Add(true, "load-balancer IP %s is not served: cnat cannot check loadBalancerSourceRanges", a)
		default:
			s.addTranslation(renderer.Frontend{IP: a, Port: port.Port, Protocol: port.Protocol}, false, outside)
		}
	}
	for _, a := range nodes {
		if s.node.ServesNodePorts(a) {
			s.addTranslation(renderer.Frontend{IP: a, Port: port.NodePort, Protocol: port.Protocol}, true, outside)
		}
	}
}

// conditions returns the facts that hold for every frontend of a family.
func (s *rendering) conditions(v6 bool) {
	is := netip.Addr.Is4
	name := "IPv4"
	if v6 {
		is, name = netip.Addr.Is6, "IPv6"
	}
	if !sourceOf(s.node, is).IsValid() {
		s.notes.Add(false, "this node has no %s address: its endpoints cannot reach themselves through the service, and answers of endpoints on "+
			"other nodes to clients from outside may miss this node", name)
	}
	if s.svc.SessionAffinityTimeout != 0 {
		s.notes.Add(false, "session affinity goes by a hash of the client's address: there is no timeout, and when endpoints come or go, some "+
			"clients change theirs")
	}
}

// external returns the paths of external addresses and this node's addresses. VPP gives a client from outside the node's address
// if the endpoint is on another node; if it is on this node, the client keeps its address, regardless of the policy.
func (s *rendering) external(cluster, local []*cnat.Path) []*cnat.Path {
	if s.svc.TrafficPolicy == renderer.ClusterWide {
		return cluster
	}
	if len(local) == 0 && len(cluster) > 0 {
		s.notes.Add(false, "externalTrafficPolicy is Local and no endpoint is on this node: pods of this node reach endpoints of others, and so do "+
			"clients from outside, with this node's address")
		return cluster
	}
	return local
}

// anotherNodes reports whether an address is another node's. That node translates packets to it, for this node's pods as for all other
// clients: its external policy Local offers them its endpoints only.
func (s *rendering) anotherNodes(a netip.Addr) bool {
	return s.nodeIPs.Contains(a) && !slices.Contains(s.node.IPs, a)
}

// discard returns the path that drops packets.
func discard(v6 bool) []*cnat.Path {
	address := DiscardIPv4
	if v6 {
		address = DiscardIPv6
	}
	return []*cnat.Path{{Destination: &cnat.Endpoint{Address: address, Port: 1}}}
}

// addTranslation makes the translation of one frontend, unless it belongs to another service or this one has it already.
func (s *rendering) addTranslation(f renderer.Frontend, nodePort bool, paths []*cnat.Path) {
	if len(paths) == 0 {
		return // the reject route answers
	}
	if _, taken := s.svc.ConflictWith(f, nodePort); taken {
		return
	}
	m := &cnat.Translation{
		Vip: &cnat.Endpoint{Address: f.IP.String(), Port: uint32(f.Port)}, Protocol: protocol(f.Protocol), Paths: paths, RealAddress: true,
	}
	if s.cfg.Maglev {
		m.LoadBalancing = cnat.LoadBalancing_MAGLEV
	}
	if s.svc.SessionAffinityTimeout != 0 {
		m.LoadBalancing, m.FlowHash = cnat.LoadBalancing_MAGLEV, []cnat.FlowHashField{cnat.FlowHashField_SRC_ADDRESS}
	}
	key := kv.Key(m)
	if _, again := s.values[key]; !again {
		s.values[key] = m
	}
}

func protocol(p renderer.ProtocolType) cnat.Protocol {
	switch p {
	case renderer.UDP:
		return cnat.Protocol_UDP
	case renderer.SCTP:
		return cnat.Protocol_SCTP
	}
	return cnat.Protocol_TCP
}

// paths returns the endpoints of a family, sorted, each repeated by its weight. All translations of a port share the messages.
func (s *rendering) paths(port string, list []*renderer.ServiceBackend, v6 bool) []*cnat.Path {
	set := adapter.Endpoints(nil, list, func(a netip.Addr) bool { return a.IsValid() && a.Is6() == v6 })
	if n := len(set); n > MaxEndpoints {
		s.notes.Add(false, "port %q has %d endpoints: this node uses %d of them, the most cnat can", port, n, MaxEndpoints)
		set = adapter.Pick(set, MaxEndpoints, s.node.Name)
	}
	weight := s.weight(set)
	var out []*cnat.Path
	for _, e := range set {
		p := &cnat.Path{Destination: &cnat.Endpoint{Address: e.At.Addr().String(), Port: uint32(e.At.Port())}}
		out = append(out, p)
		for n := 1; e.Local && n < weight; n++ {
			out = append(out, p)
		}
	}
	return out
}

// MaxEndpoints is the most endpoints of a port that a node uses: the most buckets of a load balance (LB_MAX_BUCKETS of load_balance.h, VPP
// 24.06).
const MaxEndpoints = 8192

// maxPaths bounds the number of weighted paths: VPP walks through all paths at each change, and Maglev's table has 1009 places.
const maxPaths = 256

// weight returns the number of repetitions of a local endpoint: the wanted number, bounded by the room; one if no remote endpoint exists.
func (s *rendering) weight(set []adapter.Endpoint) int {
	locals := 0
	for _, e := range set {
		if e.Local {
			locals++
		}
	}
	if locals == 0 || locals == len(set) {
		return 1
	}
	return max(1, min(int(s.cfg.LocalEndpointWeight), (maxPaths-(len(set)-locals))/locals))
}
