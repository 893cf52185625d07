package cnat

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/adapter"
)

// Node returns the values that do not depend on Services: cnat on its interfaces, the policy for sources, and the routes for
// packets to be dropped. NodeIPs are the addresses of all nodes.
//
// No route drops packets to unallocated cluster IPs: over an address of cnat, unless that always has a separate route, it would
// crash VPP (fib_entry_src_rr_resolve_via_connected, VPP 24.06; 25.10 for next hops only).
//
// The policy is the one for Kubernetes (cnat_set_snat_policy K8S, VPP 24.06). This node's address is the source of packets from a
// pod to itself, of packets from outside that continue to another node and, unless that is switched off, of packets from pods to
// outside the cluster. Packets among pods, Services and nodes keep their sources.
func Node(node renderer.NodeState, nodeIPs *renderer.IPAddresses, frontends, backends renderer.Interfaces, cfg Config) (kv.Values, []model.Note) {
	values := kv.Values{}
	if cfg.IPv4 {
		values.Put(&contivl3.RejectRoute{DstNetwork: DiscardIPv4 + "/32", Action: contivl3.RejectRoute_DROP})
	}
	if cfg.IPv6 {
		values.Put(&contivl3.RejectRoute{DstNetwork: DiscardIPv6 + "/128", Action: contivl3.RejectRoute_DROP})
	}
	policy, notes := snat(node, nodeIPs, cfg)
	if policy != nil {
		values.Put(policy)
		adapter.DropOwnPods(values, node, func(a netip.Addr) bool { return cfg.Has(a) })
	}
	for _, ifs := range []renderer.Interfaces{frontends, backends} {
		for name := range ifs {
			values.Put(onInterface(name, node, policy, cfg))
		}
	}
	return values, notes
}

// onInterface puts cnat on an interface. Its tables carry the policy's rules for interfaces, which need an address.
func onInterface(name string, node renderer.NodeState, policy *cnat.SnatPolicy, cfg Config) *cnat.Interface {
	m := &cnat.Interface{Name: name, Ipv4: cfg.IPv4, Ipv6: cfg.IPv6}
	switch {
	case policy == nil:
	case name == node.Host:
		m.Host = true
	case name != node.Uplink && name != node.Overlay:
		m.Pod = true
		m.IncludeIpv4 = !cfg.DisableSNAT && policy.Ipv4Address != ""
		m.IncludeIpv6 = !cfg.DisableSNAT && policy.Ipv6Address != ""
	}
	return m
}

// snat returns the policy; nil if no address is available, and the notes state the consequences.
func snat(node renderer.NodeState, nodeIPs *renderer.IPAddresses, cfg Config) (*cnat.SnatPolicy, []model.Note) {
	var notes []model.Note
	policy := &cnat.SnatPolicy{Kind: cnat.SnatPolicy_KUBERNETES}
	for _, family := range []struct {
		served bool
		name   string
		is     func(netip.Addr) bool
		into   *string
	}{
		{cfg.IPv4, "IPv4", netip.Addr.Is4, &policy.Ipv4Address},
		{cfg.IPv6, "IPv6", netip.Addr.Is6, &policy.Ipv6Address},
	} {
		if !family.served {
			continue
		}
		if a := sourceOf(node, family.is); a.IsValid() {
			*family.into = a.String()
			continue
		}
		notes = append(notes, model.Note{
			Ref: model.Ref{Kind: model.KindNode, Name: node.Name},
			Reason: "pods keep their addresses outside the cluster, and cannot reach themselves through services: the node has no " +
				family.name + " address",
		})
	}
	if policy.Ipv4Address == "" && policy.Ipv6Address == "" {
		return nil, notes
	}
	var excluded []netip.Prefix
	for _, list := range [][]netip.Prefix{node.ServiceCIDRs, node.PodCIDRs, node.RemotePodCIDRs()} {
		excluded = append(excluded, list...)
	}
	for _, a := range nodeIPs.Addrs() {
		excluded = append(excluded, netip.PrefixFrom(a, a.BitLen()))
	}
	excluded = slices.DeleteFunc(excluded, func(p netip.Prefix) bool { return !cfg.Has(p.Addr()) })
	for i, p := range excluded {
		excluded[i] = p.Masked()
	}
	slices.SortFunc(excluded, netip.Prefix.Compare)
	for _, p := range slices.Compact(excluded) {
		policy.ExcludedPrefixes = append(policy.ExcludedPrefixes, p.String())
	}
	return policy, notes
}

// sourceOf returns the first address of a family that the node has on its uplink, else one of its uplink's, else the node's first.
func sourceOf(node renderer.NodeState, is func(netip.Addr) bool) netip.Addr {
	usable := func(a netip.Addr) bool { return is(a) && !a.IsLinkLocalUnicast() }
	has := func(a netip.Addr) bool {
		return slices.ContainsFunc(node.UplinkIPs, func(p netip.Prefix) bool { return p.Addr() == a })
	}
	for _, a := range node.IPs {
		if usable(a) && has(a) {
			return a
		}
	}
	for _, p := range node.UplinkIPs {
		if usable(p.Addr()) {
			return p.Addr()
		}
	}
	for _, a := range node.IPs {
		if usable(a) {
			return a
		}
	}
	return netip.Addr{}
}
