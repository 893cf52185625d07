package model

import "net/netip"

// QoS limits and marks what an endpoint sends and gets. Source: Calico v3.31, the annotations qos.projectcalico.org/….
// The zero value limits nothing.
type QoS struct {
	Ingress, Egress RateLimits // as the endpoint sees it
	// DSCP is what the endpoint's packets to outside the cluster are marked with, if HasDSCP: 0 to 63.
	DSCP    uint8
	HasDSCP bool
}

// RateLimits are limits of one direction. Zero: none, or what the data plane takes by default.
type RateLimits struct {
	Bandwidth      int64 // bits per second
	Burst          int64 // bits
	PeakRate       int64 // bits per second within a burst
	MinBurst       int64 // bytes
	PacketRate     int64 // packets per second
	PacketBurst    int64 // packets
	MaxConnections int64
}

// BGPConfig is what a data plane may want to know of the cluster's default BGP configuration.
type BGPConfig struct {
	// The prefixes of Services that are announced.
	ServiceClusterIPs, ServiceExternalIPs, ServiceLoadBalancerIPs []netip.Prefix
	// The addresses every node has for sessions with its workloads; invalid: none.
	WorkloadPeering4, WorkloadPeering6 netip.Addr
}
