package renderer

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// ContivService is a Service with resolved references: endpoints joined, addresses listed.
type ContivService struct {
	// ID is unique across all namespaces.
	ID model.ServiceID

	// TrafficPolicy is spec.externalTrafficPolicy: it governs ExternalIPs and node ports, never ClusterIPs.
	TrafficPolicy TrafficPolicyType

	// SessionAffinityTimeout is the time in seconds for which a client keeps its backend; 0: no affinity.
	SessionAffinityTimeout uint32

	// ClusterIPs are the addresses inside the cluster. Node addresses for node ports are not included: UpdateNodePortServices and
	// Resync pass them.
	ClusterIPs *IPAddresses

	// ExternalIPs are spec.externalIPs and the load balancer's addresses.
	ExternalIPs *IPAddresses

	// Ports are the exposed ports by name; a single port may be named "".
	Ports map[string]*ServicePort

	// Backends are the endpoints of each port that traffic of policy Cluster may reach, sorted by address and port. An endpoint
	// serves the frontends of its address family.
	Backends map[string][]*ServiceBackend

	// InternalTrafficPolicy is spec.internalTrafficPolicy: it governs ClusterIPs.
	InternalTrafficPolicy TrafficPolicyType

	// Other are the endpoints of each port beside Backends.
	Other OtherBackends

	// BackendNodes are the nodes of all endpoints, sorted by address; an endpoint whose node is unknown is not among them. They are
	// not in ServiceBackend, because literals of that type without field names compile since Contiv.
	BackendNodes []BackendNode

	// LoadBalancerIPs is the part of ExternalIPs that LoadBalancerSourceRanges applies to; nil: none.
	LoadBalancerIPs *IPAddresses

	// LoadBalancerSourceRanges are the clients that may use LoadBalancerIPs, sorted; empty: everyone.
	LoadBalancerSourceRanges []netip.Prefix

	// SourceRangesRefused is the reason why LoadBalancerIPs with LoadBalancerSourceRanges must not be served at all: the ranges
	// need too many rules; "": they may.
	SourceRangesRefused string

	// Conflicts are frontends of this Service that belong to an older one. Do not render them here. A frontend with the zero
	// address stands for its port on every node address.
	Conflicts map[Frontend]model.ServiceID

	// PodIPs are the addresses of the Service that a pod has: the path to the pod must stay. Nil: none.
	PodIPs *IPAddresses

	// Renderer is the name of the one renderer that may serve it; "": any.
	Renderer string

	// HealthCheck is the health check of load balancers for the Service on this node; zero: none.
	HealthCheck HealthCheck
}

// OtherBackends are endpoints by the name of the port, sorted by address and port.
type OtherBackends struct {
	// Local are the endpoints that traffic of policy Local may reach. Nil: the Local ones of Backends. It differs when topology
	// hints or terminating endpoints give the two policies different sets.
	Local map[string][]*ServiceBackend

	// Draining are the endpoints of TCP ports that terminate or are not ready, whether traffic may reach them or not. Those that are not among
	// Backends, or not among the local ones, get no new connections there; a renderer that can keeps the ones that they have. Nil: none.
	Draining map[string][]*ServiceBackend
}

// HealthCheck shows load balancers whether a node has endpoints of a Service (spec.healthCheckNodePort).
type HealthCheck struct {
	NodePort uint16 // TCP port on node addresses; 0: no health check
	Local4   int    // IPv4 addresses of ready endpoints on this node
	Local6   int    // the same of IPv6
}

// NewContivService returns a service without addresses, ports and backends, ready to be filled.
func NewContivService() *ContivService {
	return &ContivService{
		ClusterIPs:  NewIPAddresses(),
		ExternalIPs: NewIPAddresses(),
		Ports:       map[string]*ServicePort{},
		Backends:    map[string][]*ServiceBackend{},
	}
}

// HasNodePort reports whether any port is exposed on node addresses, too.
func (cs ContivService) HasNodePort() bool {
	for _, port := range cs.Ports {
		if port.NodePort != 0 {
			return true
		}
	}
	return false
}

// PortNames are the keys of Ports, sorted.
func (cs *ContivService) PortNames() []string { return slices.Sorted(maps.Keys(cs.Ports)) }

// Local are the endpoints of a port for traffic of policy Local: Other.Local, or the Local ones of Backends.
func (cs *ContivService) Local(port string) []*ServiceBackend {
	if cs.Other.Local != nil {
		return cs.Other.Local[port]
	}
	var local []*ServiceBackend
	for _, b := range cs.Backends[port] {
		if b.Local {
			local = append(local, b)
		}
	}
	return local
}

// NodeOf returns the name of the node that an endpoint runs on; "": unknown.
func (cs *ContivService) NodeOf(b *ServiceBackend) string {
	i, found := slices.BinarySearchFunc(cs.BackendNodes, b.Addr(), func(n BackendNode, a netip.Addr) int { return n.Addr.Compare(a) })
	if !found {
		return ""
	}
	return cs.BackendNodes[i].Node
}

// ConflictWith returns the Service that the frontend belongs to if that is another one. Pass node true for a node's address.
func (cs *ContivService) ConflictWith(f Frontend, node bool) (model.ServiceID, bool) {
	if id, taken := cs.Conflicts[f]; taken || !node {
		return id, taken
	}
	id, taken := cs.Conflicts[Frontend{Port: f.Port, Protocol: f.Protocol}]
	return id, taken
}

// Equal reports whether both Services are equal for every renderer. Nil equals only nil.
func (cs *ContivService) Equal(o *ContivService) bool {
	if cs == nil || o == nil {
		return cs == o
	}
	return cs.ID == o.ID &&
		cs.TrafficPolicy == o.TrafficPolicy &&
		cs.InternalTrafficPolicy == o.InternalTrafficPolicy &&
		cs.SessionAffinityTimeout == o.SessionAffinityTimeout &&
		cs.ClusterIPs.Equal(o.ClusterIPs) &&
		cs.ExternalIPs.Equal(o.ExternalIPs) &&
		cs.LoadBalancerIPs.Equal(o.LoadBalancerIPs) &&
		slices.Equal(cs.LoadBalancerSourceRanges, o.LoadBalancerSourceRanges) &&
		cs.SourceRangesRefused == o.SourceRangesRefused &&
		maps.EqualFunc(cs.Ports, o.Ports, func(a, b *ServicePort) bool { return *a == *b }) &&
		maps.EqualFunc(cs.Backends, o.Backends, equalBackends) &&
		maps.EqualFunc(cs.Other.Draining, o.Other.Draining, equalBackends) &&
		slices.Equal(cs.BackendNodes, o.BackendNodes) &&
		(cs.Other.Local == nil) == (o.Other.Local == nil) &&
		maps.EqualFunc(cs.Other.Local, o.Other.Local, equalBackends) &&
		maps.Equal(cs.Conflicts, o.Conflicts) &&
		cs.PodIPs.Equal(o.PodIPs) && cs.Renderer == o.Renderer &&
		cs.HealthCheck == o.HealthCheck
}

func equalBackends(a, b []*ServiceBackend) bool {
	return slices.EqualFunc(a, b, func(x, y *ServiceBackend) bool {
		return x.Port == y.Port && x.Local == y.Local && x.HostNetwork == y.HostNetwork && x.IP.Equal(y.IP)
	})
}

// String is one line, in a fixed order, for people.
func (cs ContivService) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s cluster=%s external=%s policy=%s internal-policy=%s affinity=%ds",
		cs.ID, cs.ClusterIPs, cs.ExternalIPs, cs.TrafficPolicy, cs.InternalTrafficPolicy, cs.SessionAffinityTimeout)
	for _, name := range cs.PortNames() {
		fmt.Fprintf(&b, " port %q %s -> %v", name, cs.Ports[name], cs.Backends[name])
		if cs.Other.Local != nil {
			fmt.Fprintf(&b, " local %v", cs.Other.Local[name])
		}
		if list := cs.Other.Draining[name]; len(list) > 0 {
			fmt.Fprintf(&b, " terminating %v", list)
		}
	}
	if len(cs.LoadBalancerSourceRanges) > 0 {
		fmt.Fprintf(&b, " load-balancer=%s sources=%v", cs.LoadBalancerIPs, cs.LoadBalancerSourceRanges)
	}
	for _, f := range slices.SortedFunc(maps.Keys(cs.Conflicts), Frontend.Compare) {
		fmt.Fprintf(&b, " conflict %s of %s", f, cs.Conflicts[f])
	}
	if cs.PodIPs.Len() > 0 {
		fmt.Fprintf(&b, " pods=%s", cs.PodIPs)
	}
	if cs.Renderer != "" {
		fmt.Fprintf(&b, " renderer=%s", cs.Renderer)
	}
	if h := cs.HealthCheck; h.NodePort != 0 {
		fmt.Fprintf(&b, " health-check=%d local=%d/%d", h.NodePort, h.Local4, h.Local6)
	}
	return b.String()
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Protocol ProtocolType // transport
	Port     uint16       // port on cluster and external addresses
	NodePort uint16       // port on node addresses; 0: none
}

// String is "TCP 80", or "TCP 80 node-port 30080".
func (sp ServicePort) String() string {
	if sp.NodePort == 0 {
		return fmt.Sprintf("%s %d", sp.Protocol, sp.Port)
	}
	return fmt.Sprintf("%s %d node-port %d", sp.Protocol, sp.Port, sp.NodePort)
}

// ServiceBackend is one endpoint of one port.
type ServiceBackend struct {
	IP          net.IP // address of the endpoint
	Port        uint16 // port it listens on
	Local       bool   // it runs on this node
	HostNetwork bool   // its address is a node's
}

// BackendNode is the node of one endpoint.
type BackendNode struct {
	Addr netip.Addr // of the endpoint
	Node string     // name, as in NodeState.Name and RemoteNode.Name
}

// Compare orders by address, then by node.
func (n BackendNode) Compare(o BackendNode) int {
	return cmp.Or(n.Addr.Compare(o.Addr), cmp.Compare(n.Node, o.Node))
}

// Addr is IP in the form the rest of the project uses, without a 4-in-6 prefix; the zero Addr if IP is not an address.
func (sb *ServiceBackend) Addr() netip.Addr { return addrOf(sb.IP) }

// String is "10.1.1.2:8080", with " local" and " host-network" where they apply.
func (sb ServiceBackend) String() string {
	s := netip.AddrPortFrom(sb.Addr(), sb.Port).String()
	if sb.Local {
		s += " local"
	}
	if sb.HostNetwork {
		s += " host-network"
	}
	return s
}

// Frontend is the address, port and protocol that a client dials.
type Frontend struct {
	IP       netip.Addr // zero: every node address
	Port     uint16
	Protocol ProtocolType
}

// Compare orders by address, port and protocol.
func (f Frontend) Compare(o Frontend) int {
	if c := f.IP.Compare(o.IP); c != 0 {
		return c
	}
	if f.Port != o.Port {
		return int(f.Port) - int(o.Port)
	}
	return int(f.Protocol) - int(o.Protocol)
}

// String is "10.96.0.10:80/TCP"; "node:30080/TCP" for the port on every node address.
func (f Frontend) String() string {
	if !f.IP.IsValid() {
		return fmt.Sprintf("node:%d/%s", f.Port, f.Protocol)
	}
	return netip.AddrPortFrom(f.IP, f.Port).String() + "/" + f.Protocol.String()
}

// ProtocolType is an IP protocol number.
type ProtocolType int

// The transports a service port may have.
const (
	TCP  ProtocolType = 6
	UDP  ProtocolType = 17
	SCTP ProtocolType = 132
)

// String is TCP, UDP or SCTP; another number prints as "protocol N".
func (pt ProtocolType) String() string {
	switch pt {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", int(pt))
}

// TrafficPolicyType states which endpoints traffic may reach.
type TrafficPolicyType int

const (
	// ClusterWide reaches every endpoint.
	ClusterWide TrafficPolicyType = 0

	// NodeLocal reaches the endpoints of the node the traffic is on.
	NodeLocal TrafficPolicyType = 1
)

// String is "cluster-wide" or "node-local".
func (tpt TrafficPolicyType) String() string {
	switch tpt {
	case ClusterWide:
		return "cluster-wide"
	case NodeLocal:
		return "node-local"
	}
	return fmt.Sprintf("traffic policy %d", int(tpt))
}
