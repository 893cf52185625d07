package nat44

import (
	"errors"
	"fmt"

	"github.com/contiv-agent/contiv-agent/renderer"
)

// Limits of VPP 24.06's load-balancing mappings (nat44_add_del_lb_static_mapping, nat44_lb_static_mapping_add_del_local).
const (
	// MaxBackends is the most endpoints of one frontend: VPP counts locals in 8 bits, and two of the 255 are pads that keep a
	// mapping load-balancing when it has a single endpoint (rules A2, A6).
	MaxBackends = 253

	// MaxDrained is the most endpoints of a frontend, with the terminating ones, of which any can be drained: each needs two pads
	// (vppagent/descriptor/nat/drain).
	MaxDrained = 84

	// maxWeight is the largest sum of weights: VPP adds them up in 8 bits (rule A5).
	maxWeight = 255
)

// PadNetwork has the addresses of pads and of the drop target (RFC 5737); its packets are dropped.
const PadNetwork = "192.0.2.0/24"

// outside is an address that the default route serves (RFC 5737).
const outside = "203.0.113.254"

// Name is the name of this renderer in a Service's annotation.
const Name = "nat44"

// anyVRF makes an address pool serve every VRF.
const anyVRF = 4294967295

// defaultVXLANPort is IANA's.
const defaultVXLANPort = 4789

// IdentitiesLabel labels the identity mappings; no Service has it, because labels of Services contain a slash.
const IdentitiesLabel = "identities"

// Config has the choices that Kubernetes does not make. The zero value is usable.
type Config struct {
	// LocalEndpointWeight is the weight of an endpoint on this node relative to one on another; 0 and 1: equal. It shrinks if the
	// sum of weights would exceed VPP's 255.
	LocalEndpointWeight uint8

	// DisableSNAT keeps the addresses of pods in packets that leave the cluster.
	DisableSNAT bool

	// Families are the address families that belong to this renderer; zero: both. It serves IPv4, and refuses addresses of IPv6
	// if that family belongs to it.
	Families renderer.Families

	// NoSourceRanges is the reason why this agent does not write access lists, so that load-balancer IPs with source ranges are
	// not served: PoliciesOff or ListsOfDriver; "": it does.
	NoSourceRanges string

	// VXLANPort is the UDP port of the overlay, exempt from SNAT; 0: 4789.
	VXLANPort uint16

	// Sessions is the size of VPP's session table per worker. VPP reads it when NAT44 is enabled, and keeps its size until it restarts. 0:
	// DefaultSessions; if NAT44 is already enabled, any size that VPP has.
	Sessions uint32

	// Seconds that VPP keeps an idle session; 0: the defaults below. VPP accepts changes at any time, for existing sessions as well.
	TimeoutUDP, TimeoutTCPEstablished, TimeoutTCPTransitory, TimeoutICMP uint32
}

// DefaultSessions is the least that kube-proxy gives conntrack (--conntrack-min). VPP reserves about 47 MB for it on each thread,
// the main thread included, when NAT44 is enabled: 9 threads fit into VPP's default main heap of 1 GB.
const DefaultSessions = 1 << 17

// Default timeouts in seconds. VPP has one timeout for all of UDP, regardless of the port and of whether the server has answered;
// Linux has 30 s for a question and its answer and 120 s for a stream. 60 s is twice the keep-alive of 25 to 30 s that UDP
// applications send for NATs, and lets a node make 2,184 new UDP connections each second for ever (with VPP's 300 s and 64,512:
// 215). Established TCP keeps VPP's value, RFC 5382's least, which is longer than TCP's keep-alive of 7,200 s. Opening and
// closing TCP has Linux's 120 s (SYN_SENT, TIME_WAIT), ICMP Linux's 30 s.
const (
	DefaultTimeoutUDP            = 60
	DefaultTimeoutTCPEstablished = 7440
	DefaultTimeoutTCPTransitory  = 120
	DefaultTimeoutICMP           = 30
)

// Reasons why load-balancer IPs with source ranges are not served.
const (
	PoliciesOff   = "policies are switched off on this node"
	ListsOfDriver = "those are the driver's on this node"
)

// minSessions and maxSessions bound the table that VPP can make: a session takes about 400 bytes of the main heap, and VPP aborts
// when the heap is full.
const (
	minSessions = 1 << 10
	maxSessions = 1 << 24
)

// MaxTimeout is the longest timeout: a week, in seconds.
const MaxTimeout = 7 * 24 * 3600

// Validate names every field that cannot be honoured.
func (c Config) Validate() error {
	var errs []error
	if c.Sessions != 0 && (c.Sessions < minSessions || c.Sessions > maxSessions) {
		errs = append(errs, fmt.Errorf("sessions %d: must be 0 or %d to %d", c.Sessions, minSessions, maxSessions))
	}
	for _, t := range []struct {
		name    string
		seconds uint32
	}{
		{"UDP", c.TimeoutUDP},
		{"established TCP", c.TimeoutTCPEstablished},
		{"transitory TCP", c.TimeoutTCPTransitory},
		{"ICMP", c.TimeoutICMP},
	} {
		if t.seconds > MaxTimeout {
			errs = append(errs, fmt.Errorf("%s timeout %d s: must be at most a week", t.name, t.seconds))
		}
	}
	return errors.Join(errs...)
}

// ownsIPv6 reports whether this renderer must refuse addresses of IPv6.
func (c Config) ownsIPv6() bool { return c.Families == (renderer.Families{}) || c.Families.IPv6 }
