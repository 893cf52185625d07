package model

import "net/netip"

// QoS limits and marks the traffic of an endpoint. Source: Calico v3.31, the annotations qos.projectcalico.org/…. The
// zero value limits nothing.
type QoS struct {
	Ingress, Egress RateLimits // as the endpoint sees it
	// DSCP marks the endpoint's packets to destinations outside the cluster, if HasDSCP is set: 0 to 63.
	DSCP    uint8
	HasDSCP bool
}

// RateLimits are the limits of one direction. Zero means no limit, or the data plane's default.
type RateLimits struct {
	Bandwidth      int64 // bits per second
	Burst          int64 // bits
	PeakRate       int64 // bits per second within a burst
	MinBurst       int64 // bytes
	PacketRate     int64 // packets per second
	PacketBurst    int64 // packets
	MaxConnections int64
}

// BGPConfig is the part of the cluster's default BGP configuration that data planes use.
type BGPConfig struct {
	// The prefixes of Services that BGP announces.
	ServiceClusterIPs, ServiceExternalIPs, ServiceLoadBalancerIPs []netip.Prefix
	// The addresses that every node uses for sessions with its workloads; invalid for none.
	WorkloadPeering4, WorkloadPeering6 netip.Addr
}
