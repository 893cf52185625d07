package felix

import (
	"fmt"
	"strings"
)

// Use is what the driver does with messages of a kind.
type Use uint8

// Values of Use.
const (
	Ignored Use = iota // deliberately
	Partly             // some of its fields are used
	Used
)

// String returns the word in the manual.
func (u Use) String() string { return [...]string{"ignored", "partly", "used"}[u] }

// Handling describes what the driver does with messages of a kind.
type Handling struct {
	Field string // of ToDataplane's oneof
	Use   Use
	Text  string
}

// Handlings returns the use of every message of the protocol, in the order of their numbers.
func Handlings() []Handling {
	const (
		routing = "the agent does not configure forwarding between nodes"
		labels  = "labels are in the selectors' sets already"
	)
	return []Handling{
		{"in_sync", Used, "with the first config_update it starts the first sync: VPP is compared with the whole desired state"},
		{"ipset_update", Used, "members become rules; replaces a set of that id"},
		{"ipset_delta_update", Used, "rewrites the part of the rules that changes; without an earlier update of the set, rules with the set fail closed"},
		{"ipset_remove", Used, "forgets the set"},
		{"active_profile_update", Used, "rules that decide when no policy does"},
		{"active_profile_remove", Used, "an endpoint that still has the profile is denied"},
		{"active_policy_update", Used, "rules of a tier; staged policies are listed by status and decide nothing; for untracked and pre-DNAT ones see renderer/acl"},
		{"active_policy_remove", Used, "an endpoint that still has the policy is denied"},
		{"host_endpoint_update", Used, "lists at the input of uplink, overlay and host interface; its status is reported"},
		{"host_endpoint_remove", Used, "removes the lists, and withdraws its status"},
		{"workload_endpoint_update", Used, "lists at the endpoint's interface; its status is reported. allow_spoofed_source_prefixes count if WorkloadSourceSpoofing is Any; QoS, NAT and BGP peers are ignored"},
		{"workload_endpoint_remove", Used, "removes the lists, and withdraws its status"},
		{"config_update", Partly, "FelixHostname names this node, FailsafeInboundHostPorts and FailsafeOutboundHostPorts are kept open; all else is for Felix's own dataplane"},
		{"host_metadata_update", Partly, "this node's address: finds the uplink, and may always reach the node's own pods (probes)"},
		{"ipam_pool_update", Ignored, routing},
		{"ipam_pool_remove", Ignored, routing},
		{"host_metadata_remove", Partly, "this node's address is removed"},
		{"service_account_update", Ignored, labels},
		{"service_account_remove", Ignored, labels},
		{"namespace_update", Ignored, labels},
		{"namespace_remove", Ignored, labels},
		{"route_update", Partly, "LOCAL_HOST and LOCAL_TUNNEL are addresses of this node; REMOTE_WORKLOAD finds the overlay; routes themselves: " + routing},
		{"route_remove", Partly, "the address or prefix is forgotten"},
		{"vtep_update", Ignored, routing},
		{"vtep_remove", Ignored, routing},
		{"wireguard_endpoint_update", Ignored, routing},
		{"wireguard_endpoint_remove", Ignored, routing},
		{"global_bgp_config_update", Ignored, routing},
		{"encapsulation", Ignored, routing},
		{"service_update", Partly, "cluster IPs are permitted at the client and evaluated behind the translation, in the pre-DNAT view; Services themselves are not rendered from it"},
		{"service_remove", Partly, "the cluster IPs are forgotten"},
		{"wireguard_endpoint_v6_update", Ignored, routing},
		{"wireguard_endpoint_v6_remove", Ignored, routing},
		{"host_metadata_v6_update", Partly, "as host_metadata_update, for IPv6"},
		{"host_metadata_v6_remove", Partly, "as host_metadata_remove, for IPv6"},
		{"host_metadata_v4v6_update", Partly, "as host_metadata_update, for both families"},
		{"host_metadata_v4v6_remove", Partly, "as host_metadata_remove, for both families"},
	}
}

// Manual returns Handlings as a table of text.
func Manual() string {
	var b strings.Builder
	for _, h := range Handlings() {
		fmt.Fprintf(&b, "%-29s %-8s %s\n", h.Field, h.Use, h.Text)
	}
	return b.String()
}
