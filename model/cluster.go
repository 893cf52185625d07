package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// PodID names a Pod within a cluster.
type PodID struct {
	Name      string
	Namespace string
}

// String is "namespace/name".
func (id PodID) String() string { return id.Namespace + "/" + id.Name }

// Compare orders by namespace, then name.
func (id PodID) Compare(o PodID) int {
	return compareNames(id.Namespace, id.Name, o.Namespace, o.Name)
}

func compareNames(ns1, n1, ns2, n2 string) int {
	if c := strings.Compare(ns1, ns2); c != 0 {
		return c
	}
	return strings.Compare(n1, n2)
}

// NamedPort is a container port of a pod that has a name.
type NamedPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Pod is core/v1 Pod, as far as a data plane depends on it.
type Pod struct {
	ID             PodID
	Labels         map[string]string
	NodeName       string // "" if not scheduled
	IPs            []netip.Addr
	HostNetwork    bool
	Finished       bool // phase Succeeded or Failed: another pod may already use its addresses
	Ports          []NamedPort
	ContainerPorts []ContainerPort // every port its containers declare, named or not, sorted and without duplicates
	ServiceAccount string
	// Annotations holds AnnotationSourceCheck and AnnotationAllowedSources if the pod has them; nil if it has none.
	Annotations map[string]string
}

// WithoutInterface returns why the VPP of a node has no interface of a pod; nil: it has one. p is nil if the node's agent does not know the pod.
func (p *Pod) WithoutInterface(id PodID, node string) error {
	switch {
	case p == nil:
		return fmt.Errorf("pod %s: the agent of %s does not know it", id, node)
	case p.NodeName != node:
		return fmt.Errorf("pod %s: it is on node %q, and this is the agent of %s", id, p.NodeName, node)
	case p.HostNetwork:
		return fmt.Errorf("pod %s: it uses the host's network, so it has no interface in VPP", id)
	case p.Finished || len(p.IPs) == 0:
		return fmt.Errorf("pod %s: it has finished, or has no address yet", id)
	}
	return nil
}

// ContainerPort is a port on which a container of a pod declares to listen.
type ContainerPort struct {
	Protocol Protocol
	Port     uint16
}

// Compare orders by protocol, then by port.
func (p ContainerPort) Compare(o ContainerPort) int {
	return cmp.Or(cmp.Compare(p.Protocol, o.Protocol), cmp.Compare(p.Port, o.Port))
}

// Annotations of Pods that allow further source addresses.
const (
	// AnnotationSourceCheck with the value "false" allows any source address.
	AnnotationSourceCheck = AnnotationPrefix + "source-check"
	// AnnotationAllowedSources is Calico's annotation: a JSON list of prefixes or addresses.
	AnnotationAllowedSources = "cni.projectcalico.org/allowedSourcePrefixes"
)

// AnnotationUplink is the annotation of Nodes with the addresses of their VPP's interface to other nodes: prefixes, separated by commas.
const AnnotationUplink = AnnotationPrefix + "uplink-addresses"

// Node is core/v1 Node, as far as a data plane depends on it.
type Node struct {
	Name        string
	Labels      map[string]string
	Zone        string       // label topology.kubernetes.io/zone
	InternalIPs []netip.Addr // status.addresses of type InternalIP, in order
	ExternalIPs []netip.Addr // status.addresses of type ExternalIP, in order
	PodCIDRs    []netip.Prefix
	Uplink      string // annotation AnnotationUplink; "": it has none
	// Leaving says that the Node is being deleted, or that a cluster autoscaler is about to delete it (taint
	// ToBeDeletedByClusterAutoscaler). Load balancers should not send it new connections.
	Leaving bool
}

// Addrs are all addresses of the node, internal ones first, in the order of its status.
func (n *Node) Addrs() []netip.Addr {
	all := make([]netip.Addr, 0, len(n.InternalIPs)+len(n.ExternalIPs))
	return append(append(all, n.InternalIPs...), n.ExternalIPs...)
}

// Namespace is core/v1 Namespace.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// ServiceAccount is core/v1 ServiceAccount. Policies can select pods by its labels.
type ServiceAccount struct {
	Namespace, Name string
	Labels          map[string]string
}

// ServiceCIDR is networking.k8s.io/v1 ServiceCIDR: ranges from which cluster IPs are allocated.
type ServiceCIDR struct {
	Name  string
	CIDRs []netip.Prefix
}
