package budget

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/model"
)

// nodePorts is how many frontends a node port counts for. It is a constant, so that no verdict changes when a node joins.
const nodePorts = 2

// OfService is what a Service asks for: for each of its ports the frontends at its addresses, and those of its node port, each with all
// endpoints of its slices; and where it restricts clients, the rules that deny all others.
func OfService(s *model.Service, parts []*model.EndpointSlice) Size {
	var out Size
	addrs, endpoints := factors(s, parts)
	for _, p := range s.Ports {
		n := addrs
		if p.NodePort != 0 {
			n += nodePorts
		}
		out[Backends] = plus(out[Backends], times(n, max(1, endpoints)))
	}
	out[RangeRules] = rangeRules(s)
	out[Memory] = out[Backends] / perKiB
	return out
}

// factors returns the numbers that the backends of each port are the product of, without the addresses of its node port.
func factors(s *model.Service, parts []*model.EndpointSlice) (addrs, endpoints int) {
	for _, p := range parts {
		endpoints += len(p.Endpoints)
	}
	return len(s.ClusterIPs) + len(s.ExternalIPs) + len(s.LoadBalancerIPs), endpoints
}

// WhyBackends names the fields that make the backends of a Service, for a refusal: "spec.ports: 2, for 3 addresses and 10 endpoints".
func WhyBackends(s *model.Service, parts []*model.EndpointSlice) string {
	addrs, endpoints := factors(s, parts)
	return fmt.Sprintf("spec.ports: %d, for %d addresses and %d endpoints", len(s.Ports), addrs, endpoints)
}

// rangeRules is how many rules the source ranges of a Service make. VPP's NAT has one mapping for all clients and its access lists end with
// the first rule that matches, so that rules deny, for each port of each load-balancer IP, all prefixes outside the ranges (ADR 10).
func rangeRules(s *model.Service) int {
	if s.Type != model.LoadBalancer || len(s.LoadBalancerSourceRanges) == 0 {
		return 0
	}
	outside := -1 // not counted yet
	n := 0
	for _, lb := range s.LoadBalancerIPs {
		if !lb.Addr.Is4() || lb.Proxy {
			continue
		}
		if outside < 0 {
			outside = 0
			for range model.OutsideIPv4(s.LoadBalancerSourceRanges) {
				outside++
			}
		}
		n = plus(n, times(outside, len(s.Ports)))
	}
	return n
}
