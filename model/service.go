package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Protocol is an IP protocol number; the zero value is invalid.
type Protocol uint8

// The protocols a Service port may have, and ICMP for questions about packets.
const (
	ICMP   Protocol = 1
	TCP    Protocol = 6
	UDP    Protocol = 17
	ICMPv6 Protocol = 58
	SCTP   Protocol = 132
)

// String is Kubernetes' spelling: TCP, UDP, SCTP, ICMP, and ICMPv6; other numbers print as "proto-N".
func (p Protocol) String() string {
	switch p {
	case ICMP:
		return "ICMP"
	case ICMPv6:
		return "ICMPv6"
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("proto-%d", uint8(p))
}

// ParseProtocol is the inverse of String for TCP, UDP, SCTP and ICMP. It accepts Kubernetes' spelling only: case
// matters.
func ParseProtocol(s string) (Protocol, error) {
	for _, p := range []Protocol{ICMP, TCP, UDP, SCTP} {
		if s == p.String() {
			return p, nil
		}
	}
	return 0, fmt.Errorf("protocol %q: must be TCP, UDP, SCTP or ICMP", s)
}

// ServiceType is spec.type; the zero value is ClusterIP.
type ServiceType uint8

// The types of core/v1 Service.
const (
	ClusterIP ServiceType = iota
	NodePort
	LoadBalancer
	ExternalName
)

// TrafficPolicy is spec.externalTrafficPolicy or spec.internalTrafficPolicy; the zero value is Cluster.
type TrafficPolicy uint8

// The traffic policies of core/v1 Service.
const (
	PolicyCluster TrafficPolicy = iota
	PolicyLocal
)

// ServicePort is one entry of spec.ports. TargetPort is left out: EndpointSlices carry resolved numbers.
type ServicePort struct {
	Name     string // "" for the only port of a service
	Protocol Protocol
	Port     uint16 // 1..65535
	NodePort uint16 // 0: none
}

// LoadBalancerIP is one status.loadBalancer.ingress entry that has an address. Host names are not rendered.
type LoadBalancerIP struct {
	Addr netip.Addr
	// Proxy is ipMode Proxy: traffic must reach the load balancer itself, so nodes do not translate the address.
	Proxy bool
}

// Service is core/v1 Service, as far as a data plane depends on it. Source: k8s.io/api core/v1, kube-proxy v1.36
// semantics.
type Service struct {
	ID                       ServiceID
	Created                  time.Time // metadata.creationTimestamp, in whole seconds; zero if unknown, as in a manifest
	UID                      string    // metadata.uid; "" if unknown
	Type                     ServiceType
	Headless                 bool         // clusterIP None
	ClusterIPs               []netip.Addr // spec.clusterIPs in order; empty when headless or not yet allocated
	ExternalIPs              []netip.Addr // sorted
	LoadBalancerIPs          []LoadBalancerIP
	LoadBalancerSourceRanges []netip.Prefix // sorted; empty: everyone
	Ports                    []ServicePort  // in spec order
	ExternalTrafficPolicy    TrafficPolicy
	InternalTrafficPolicy    TrafficPolicy
	SessionAffinityTimeout   time.Duration // 0: no affinity
	PublishNotReadyAddresses bool
	HealthCheckNodePort      uint16
	TrafficDistribution      string // "", PreferClose, PreferSameZone, PreferSameNode
	Selectorless             bool   // no spec.selector: another program maintains the endpoints
	// ProxyName is the label service.kubernetes.io/service-proxy-name. If it is set, that proxy serves the Service.
	ProxyName   string
	Annotations map[string]string // only those with our prefix; nil if none
}

// CompareAge orders Services by creationTimestamp, then UID, then namespace and name: older first. One without a
// timestamp is the youngest.
func (s *Service) CompareAge(o *Service) int {
	switch known, other := !s.Created.IsZero(), !o.Created.IsZero(); {
	case known && !other:
		return -1
	case other && !known:
		return 1
	}
	return cmp.Or(s.Created.Compare(o.Created), strings.Compare(s.UID, o.UID), s.ID.Compare(o.ID))
}

// ServiceID names a Service within a cluster.
type ServiceID struct {
	Name      string
	Namespace string
}

// String is "namespace/name".
func (id ServiceID) String() string { return id.Namespace + "/" + id.Name }

// Compare orders by namespace, then name.
func (id ServiceID) Compare(o ServiceID) int {
	return compareNames(id.Namespace, id.Name, o.Namespace, o.Name)
}
