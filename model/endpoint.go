package model

import (
	"net/netip"
	"time"
)

// SliceID names an EndpointSlice within a cluster.
type SliceID struct {
	Name      string
	Namespace string
}

// String is "namespace/name".
func (id SliceID) String() string { return id.Namespace + "/" + id.Name }

// EndpointPort is one port of an EndpointSlice. Conversion leaves out ports without a number.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Endpoint is one endpoint of an EndpointSlice. The conditions have their defaults: nil ready means true, nil serving
// means true, nil terminating means false (discovery/v1; kube-proxy v1.36 does the same).
type Endpoint struct {
	Addr        netip.Addr // the first address; further ones are ignored, as in kube-proxy
	Ready       bool
	Serving     bool
	Terminating bool
	NodeName    string // "" unknown
	Zone        string
	Pod         PodID    // the target reference if it is a Pod; zero otherwise
	ForZones    []string // hints, sorted
	ForNodes    []string // hints, sorted
}

// EndpointSlice is discovery/v1 EndpointSlice of address type IPv4 or IPv6.
type EndpointSlice struct {
	ID        SliceID
	Service   ServiceID // label kubernetes.io/service-name; Name "" if the slice belongs to no service
	IPv6      bool      // address type
	Ports     []EndpointPort
	Endpoints []Endpoint
	// TriggerTime is annotation endpoints.kubernetes.io/last-change-trigger-time; zero if absent.
	TriggerTime time.Time
}
