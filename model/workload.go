package model

import (
	"net/netip"
	"strings"
)

// WorkloadID names a workload endpoint: one interface of one pod on one node.
type WorkloadID struct {
	Node         string
	Orchestrator string // "k8s" for pods
	Workload     string // "namespace/pod" for pods
	Endpoint     string // "eth0"
}

// String is "node/orchestrator/workload/endpoint".
func (id WorkloadID) String() string {
	return id.Node + "/" + id.Orchestrator + "/" + id.Workload + "/" + id.Endpoint
}

// Compare orders by node, orchestrator, workload, endpoint.
func (id WorkloadID) Compare(o WorkloadID) int {
	if c := compareNames(id.Node, id.Orchestrator, o.Node, o.Orchestrator); c != 0 {
		return c
	}
	return compareNames(id.Workload, id.Endpoint, o.Workload, o.Endpoint)
}

// AddressPair is a NAT mapping of one address of a workload.
type AddressPair struct{ External, Internal netip.Addr }

// WorkloadEndpoint is an interface of a pod or virtual machine to which policies apply.
type WorkloadEndpoint struct {
	ID                  WorkloadID
	State               string // "active"; any other value means administratively down
	Interface           string // name of the end on the host
	MAC                 string // "" unknown
	Profiles            []string
	Nets                []netip.Prefix // both families, in the order of the object
	NAT                 []AddressPair  // both families
	Labels              map[string]string
	Ports               []NamedPort
	AllowSpoofedSources []netip.Prefix
	Annotations         map[string]string
	QoS                 *QoS // nil: none
}

// HostEndpointID names a host endpoint.
type HostEndpointID struct{ Node, Name string }

// String is "node/name".
func (id HostEndpointID) String() string { return id.Node + "/" + id.Name }

// Compare orders by node, then name.
func (id HostEndpointID) Compare(o HostEndpointID) int {
	return compareNames(id.Node, id.Name, o.Node, o.Name)
}

// HostEndpoint is an interface of a node to which policies apply.
type HostEndpoint struct {
	ID        HostEndpointID
	Interface string       // "*" means all interfaces; "" means the one with an expected address
	Addrs     []netip.Addr // expected addresses, both families
	Profiles  []string
	Labels    map[string]string
	Ports     []NamedPort
	QoS       *QoS // nil for none; host endpoints use only the DSCP mark
}

// NetworkSet is a named list of networks with labels. Selectors match it like an endpoint.
type NetworkSet struct {
	Name     string // "namespace/name", or the name alone for a global set
	Nets     []netip.Prefix
	Labels   map[string]string
	Profiles []string // "kns.<ns>" for a namespaced set
}

// Pool is an address pool from which pods get their addresses.
type Pool struct {
	ID         string // "10.65.0.0-16"
	CIDR       netip.Prefix
	Masquerade bool
	IPIPMode   string // "", "always", "cross-subnet"
	VXLANMode  string // as IPIPMode
}

// Block is a part of a pool that belongs to one node.
type Block struct {
	CIDR netip.Prefix
	Node string // "" if it belongs to none
	// Borrowed are addresses of the block that other nodes use.
	Borrowed []BorrowedAddr
}

// BorrowedAddr is an address that a node uses although its block belongs to another node.
type BorrowedAddr struct {
	Addr netip.Addr
	Node string
}

// Host is a node as routing uses it. The zero value of a field means unknown.
type Host struct {
	Name       string
	IPv4, IPv6 netip.Addr
	Net4, Net6 netip.Prefix // the node's subnets, with the node's own address; invalid if the mask is unknown
	Addrs      []netip.Addr // further addresses
	IPIP       netip.Addr   // tunnel addresses
	VXLAN4     netip.Addr
	VXLAN6     netip.Addr
	Wireguard4 netip.Addr
	Wireguard6 netip.Addr
	ASNumber   string
	Labels     map[string]string
}

// Wireguard is the public half of a node's WireGuard configuration.
type Wireguard struct {
	PublicKey, PublicKeyV6 string // "" off
	IPv4, IPv6             netip.Addr
}

// ProfileNamespace is the namespace a profile "kns.<ns>" stands for; ok is false for other profiles.
func ProfileNamespace(profile string) (namespace string, ok bool) {
	return strings.CutPrefix(profile, "kns.")
}

// ProfileServiceAccount is the service account a profile "ksa.<ns>.<name>" stands for. The first dot ends the
// namespace: a namespace's name has no dot, a service account's may have.
func ProfileServiceAccount(profile string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(profile, "ksa.")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".")
}
