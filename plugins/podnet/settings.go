package podnet

import (
	"errors"
	"fmt"
	"net/netip"
)

// Settings are the settings of a node's network.
type Settings struct {
	NodeName string // name of this node's Node object
	// MTU of the links between nodes; 0: 1500. Pods get less: see PodMTU.
	MTU int
	// ServiceCIDRs are ranges of cluster IPs beside those of ServiceCIDR objects.
	ServiceCIDRs []netip.Prefix
	// Direct is VPP's interface to other nodes; the zero value: tunnels lead to them.
	Direct Direct
}

const (
	defaultMTU = 1500
	minMTU     = 1280 // of IPv6
	// vxlanPort and vni are those of the tunnels between nodes (RFC 7348); vni is also the number of the table of their outer packets.
	vxlanPort, vni = 4789, 4789
)

// Overhead of a VXLAN tunnel: the inner Ethernet header, VXLAN, UDP and the outer IP header.
const (
	overhead4 = 14 + 8 + 8 + 20
	overhead6 = 14 + 8 + 8 + 40
)

// Validate returns all errors of the settings.
func (s *Settings) Validate() error {
	var errs []error
	if s.NodeName == "" {
		errs = append(errs, errors.New("node name: must not be empty"))
	}
	if s.MTU != 0 && (s.MTU < minMTU+overhead6 || s.MTU > 65535) {
		errs = append(errs, fmt.Errorf("MTU %d: must be from %d to 65535", s.MTU, minMTU+overhead6))
	}
	return errors.Join(append(errs, s.Direct.validate())...)
}

// linkMTU is the MTU of the links between nodes.
func (s *Settings) linkMTU() int {
	if s.MTU == 0 {
		return defaultMTU
	}
	return s.MTU
}

// PodMTU is the MTU of pods whose packets cross tunnels over IPv4 (v6: over IPv6) between nodes, if there are tunnels.
func (s *Settings) PodMTU(v6 bool) int {
	switch {
	case s.Direct.On():
		return s.linkMTU()
	case v6:
		return s.linkMTU() - overhead6
	}
	return s.linkMTU() - overhead4
}
