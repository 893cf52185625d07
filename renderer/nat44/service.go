package nat44

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/adapter"
)

// Service returns all values of one Service on the given node: a DNat44 if anything can be mapped, and a reject route for each of
// its addresses. NodeIPs are the addresses of all nodes. Of the node, name, addresses and loopback matter.
func Service(svc *renderer.ContivService, node renderer.NodeState, nodeIPs *renderer.IPAddresses, cfg Config) (kv.Values, []model.Note) {
	s := &rendering{svc: svc, node: node, nodeIPs: nodeIPs, cfg: cfg, notes: adapter.Notes{Of: svc.ID}}
	if len(svc.Ports)*(svc.ClusterIPs.Len()+svc.ExternalIPs.Len()) > 1 || svc.HasNodePort() {
		s.seen = map[renderer.Frontend]struct{}{}
	}
	if !s.elsewhere() {
		s.refuseFamilies()
		for _, name := range svc.PortNames() {
			s.renderPort(name, svc.Ports[name])
		}
	}
	values := kv.Values{}
	if len(s.mappings) > 0 {
		if len(s.mappings) > 1 {
			slices.SortFunc(s.mappings, compareMappings)
		}
		values.Put(&nat.DNat44{Label: svc.ID.String(), StMappings: s.mappings})
	}
	s.putRestricted(values)
	adapter.Refuse(values, svc, node.Refusal, nodeIPs, netip.Addr.Is4)
	return values, s.notes.List
}

// rendering is the state of one call of Service.
type rendering struct {
	svc      *renderer.ContivService
	node     renderer.NodeState
	nodeIPs  *renderer.IPAddresses
	cfg      Config
	seen     map[renderer.Frontend]struct{} // nil: only one can exist
	mappings []*nat.DNat44_StaticMapping
	// restricted are the frontends with source ranges, each with its mapping; nil: it has none.
	restricted []restricted
	notes      adapter.Notes
	room       []adapter.Endpoint // of the port that is rendered
}

// target is the destination of a kind of traffic.
type target struct {
	locals locals // none: packets are dropped
	source nat.DNat44_StaticMapping_TwiceNatMode
	reject bool // no mapping: the reject route answers
}

// elsewhere reports that this renderer serves nothing of the Service: the Service names another renderer, or all its addresses are of IPv6,
// which belongs to another.
func (s *rendering) elsewhere() bool {
	v4 := false
	for _, addrs := range []*renderer.IPAddresses{s.svc.ClusterIPs, s.svc.ExternalIPs} {
		for _, a := range addrs.Addrs() {
			if v4 = v4 || a.Is4(); a.Is4() && s.svc.Renderer != "" && s.svc.Renderer != Name {
				s.notes.Add(true, "address %s is not served: the service asks for %s, and IPv4 is nat44's on this node", a, s.svc.Renderer)
			}
		}
	}
	return s.svc.Renderer != "" && s.svc.Renderer != Name || !s.cfg.ownsIPv6() && !v4
}

// refuseFamilies notes the addresses that are not served because they are IPv6 (rule A10).
func (s *rendering) refuseFamilies() {
	for _, addrs := range []*renderer.IPAddresses{s.svc.ClusterIPs, s.svc.ExternalIPs} {
		for _, a := range addrs.Addrs() {
			if a.Is6() && s.cfg.ownsIPv6() {
				s.notes.Add(true, "address %s is not served: nat44 has no IPv6", a)
			}
		}
	}
}

// renderPort renders one port of the Service on every address.
func (s *rendering) renderPort(name string, port *renderer.ServicePort) {
	if port.Protocol != renderer.TCP && port.Protocol != renderer.UDP {
		s.notes.Add(true, "port %q (%s %d) is not served: nat44 translates the ports of TCP and UDP only", name, port.Protocol, port.Port)
		return
	}
	outer := s.svc.ExternalIPs.Len() > 0 || port.NodePort != 0
	leaving := s.svc.Other.Draining[name]
	cluster := s.locals(name, s.svc.Backends[name], leaving)
	var local locals
	if s.svc.InternalTrafficPolicy == renderer.NodeLocal || outer && s.svc.TrafficPolicy == renderer.NodeLocal {
		here := slices.DeleteFunc(slices.Clone(leaving), func(b *renderer.ServiceBackend) bool { return !b.Local })
		local = s.locals(name, s.svc.Local(name), here)
	}
	internal := s.internal(cluster, local)
	if outer && s.svc.TrafficPolicy == renderer.NodeLocal {
		local = local.beside(cluster)
	}
	for _, a := range s.svc.ClusterIPs.Addrs() {
		s.addMapping(renderer.Frontend{IP: a, Port: port.Port, Protocol: port.Protocol}, false, internal)
	}
	if !outer {
		return
	}
	outside := s.external(cluster, local)
	for _, a := range s.svc.ExternalIPs.Addrs() {
		f := renderer.Frontend{IP: a, Port: port.Port, Protocol: port.Protocol}
		switch {
		case s.anotherNodes(a):
		case adapter.Restricted(s.svc, a):
			s.restrict(f, outside)
		default:
			s.addMapping(f, false, outside)
		}
	}
	if port.NodePort == 0 {
		return
	}
	for _, a := range s.nodeIPs.Addrs() {
		if s.node.ServesNodePorts(a) && !s.anotherNodes(a) {
			s.addMapping(renderer.Frontend{IP: a, Port: port.NodePort, Protocol: port.Protocol}, true, outside)
		}
	}
}

// anotherNodes reports whether an address is another node's. That node translates packets to it, for this node's pods as for all other clients:
// its external policy Local offers them its endpoints only. So no mapping follows the addition and removal of nodes, which would end the
// connections of other mappings to the same endpoints (rule C20).
func (s *rendering) anotherNodes(a netip.Addr) bool {
	return s.nodeIPs.Contains(a) && !slices.Contains(s.node.IPs, a)
}

// internal returns the target of cluster IPs: the source is kept.
func (s *rendering) internal(cluster, local locals) target {
	set := cluster
	if s.svc.InternalTrafficPolicy == renderer.NodeLocal {
		if set = local; len(local.taking) == 0 && len(cluster.taking) > 0 {
			s.notes.Add(false, "cluster IPs are silent on this node: internalTrafficPolicy is Local and no endpoint is here")
			return target{}
		}
	}
	return s.shown(set)
}

// shown keeps the client's address, except in a call of an endpoint to itself (rule A8). That call needs the NAT loopback, and a
// mapping with it waits until the node has one: until then all calls work except those to oneself.
func (s *rendering) shown(set locals) target {
	t := target{locals: set, source: nat.DNat44_StaticMapping_SELF, reject: len(set.taking) == 0}
	if !t.reject && !s.node.Loopback.Is4() {
		s.notes.Add(false, "this node has no NAT loopback: its endpoints cannot reach themselves through the service")
		t.source = nat.DNat44_StaticMapping_DISABLED
	}
	return t
}

// external returns the target of external addresses and this node's addresses. Policy Cluster hides the client, so that answers
// of endpoints elsewhere return through this node; policy Local shows it.
func (s *rendering) external(cluster, local locals) target {
	if s.svc.TrafficPolicy == renderer.ClusterWide {
		return s.hidden(cluster)
	}
	set := local
	if len(local.taking) == 0 && len(cluster.taking) > 0 {
		s.notes.Add(false, "externalTrafficPolicy is Local and no endpoint is on this node: pods of this node reach endpoints of others, "+
			"clients from outside are not answered")
		set = cluster
	}
	return s.shown(set)
}

// hidden replaces the client by the NAT loopback. Without it VPP would drop such packets ("out of ports", rule A8).
func (s *rendering) hidden(set locals) target {
	t := target{locals: set, source: nat.DNat44_StaticMapping_ENABLED, reject: len(set.taking) == 0}
	if !t.reject && !s.node.Loopback.Is4() {
		s.notes.Add(false, "this node has no NAT loopback: clients from outside keep their address, and answers of endpoints on other "+
			"nodes may miss this node")
		t.source = nat.DNat44_StaticMapping_DISABLED
	}
	return t
}

// addMapping appends the mapping of one frontend, unless it belongs to another Service or this one has it already.
func (s *rendering) addMapping(f renderer.Frontend, nodePort bool, to target) {
	if f.IP.Is4() && !to.reject && s.ours(f, nodePort) {
		s.mappings = append(s.mappings, s.mapping(f, to))
	}
}

// ours reports that a frontend belongs to no other Service, and did not occur before.
func (s *rendering) ours(f renderer.Frontend, nodePort bool) bool {
	if _, taken := s.svc.ConflictWith(f, nodePort); taken {
		return false
	}
	if s.seen != nil {
		if _, again := s.seen[f]; again {
			return false
		}
		s.seen[f] = struct{}{}
	}
	return true
}

func (s *rendering) mapping(f renderer.Frontend, to target) *nat.DNat44_StaticMapping {
	m := &nat.DNat44_StaticMapping{
		ExternalIp: f.IP.String(), ExternalPort: uint32(f.Port), LocalIps: to.locals.all, Protocol: nat.DNat44_TCP,
	}
	if f.Protocol == renderer.UDP {
		m.Protocol = nat.DNat44_UDP
	}
	if len(to.locals.taking) > 0 {
		m.TwiceNat = to.source
		if m.SessionAffinity = s.affinity(f.IP); m.SessionAffinity > 0 { // clients are pinned to places, which a drain would move
			if m.LocalIps = to.locals.taking; to.locals.leaving {
				s.notes.Add(false, "connections at %s to endpoints that terminate or are not ready end: nat44 cannot drain endpoints with session affinity (cnat can)", f.IP)
			}
		}
	}
	return m
}

// affinity returns the time in seconds for which clients of an address keep their endpoint; 0: none.
func (s *rendering) affinity(a netip.Addr) uint32 {
	if s.svc.SessionAffinityTimeout > 0 && !s.holds(a) {
		s.notes.Add(false, "session affinity does not hold at %s: only a range of cluster IPs and this node's addresses are safe from sessions that kill VPP", a)
		return 0
	}
	return s.svc.SessionAffinityTimeout
}

// holds reports whether no client can have a session of the uplink's SNAT with an address that Services may get: only such an
// address may have session affinity (rule A12). VPP drops packets to cluster IPs that no Service has, and packets to this node's
// addresses do not leave by the uplink. Clients may dial any other address before a Service has it.
func (s *rendering) holds(a netip.Addr) bool {
	return slices.Contains(s.node.IPs, a) || slices.ContainsFunc(s.node.ServiceCIDRs, func(r netip.Prefix) bool { return r.Contains(a) })
}

func compareMappings(a, b *nat.DNat44_StaticMapping) int {
	if a.ExternalIp != b.ExternalIp {
		x, _ := netip.ParseAddr(a.ExternalIp)
		y, _ := netip.ParseAddr(b.ExternalIp)
		return x.Compare(y)
	}
	return cmp.Or(cmp.Compare(a.ExternalPort, b.ExternalPort), cmp.Compare(a.Protocol, b.Protocol))
}
