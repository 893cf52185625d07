package adapter

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// Notes are the remarks about one Service. Each reason appears once.
type Notes struct {
	Of   model.ServiceID
	List []model.Note
}

// Add appends a remark. Refused says that a part of the Service is not served.
func (n *Notes) Add(refused bool, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if slices.ContainsFunc(n.List, func(n model.Note) bool { return n.Reason == reason }) {
		return
	}
	n.List = append(n.List, model.Note{
		Ref:    model.Ref{Kind: model.KindService, Namespace: n.Of.Namespace, Name: n.Of.Name},
		Reason: reason, Refused: refused,
	})
}

// DropOwnPods puts a route of last resort for each pod CIDR of this node in a family, and returns these CIDRs. The route
// drops packets to a pod without a route. By the default route they would leave the node with another source address
// and a session that outlasts the pod's next route. A CIDR that overlaps one of another node gets no such route.
func DropOwnPods(values kv.Values, node renderer.NodeState, family func(netip.Addr) bool) (dropped []netip.Prefix) {
	remote := node.RemotePodCIDRs()
	for _, own := range node.PodCIDRs {
		if family(own.Addr()) && !slices.ContainsFunc(remote, own.Overlaps) {
			dropped = append(dropped, own)
			values.Put(&contivl3.RejectRoute{DstNetwork: own.Masked().String(), Action: contivl3.RejectRoute_DROP, LastResort: true})
		}
	}
	return dropped
}

// Refuse puts a reject route for each served address of the Service, so that VPP, or the node's Refusal, answers what VPP does not translate.
// Addresses of nodes and pods are left out: their routes belong to others, and a reject route would replace them.
func Refuse(values kv.Values, svc *renderer.ContivService, refusal renderer.Refusal, nodeIPs *renderer.IPAddresses, served func(netip.Addr) bool) {
	for _, addrs := range []*renderer.IPAddresses{svc.ClusterIPs, svc.ExternalIPs} {
		for _, a := range addrs.Addrs() {
			if served(a) && !nodeIPs.Contains(a) && !svc.PodIPs.Contains(a) {
				iface, neighbour := refusal.Neighbour(a.Is6())
				values.Put(&contivl3.RejectRoute{DstNetwork: netip.PrefixFrom(a, a.BitLen()).String(), OutgoingInterface: iface, NextHopAddr: neighbour})
			}
		}
	}
}

// Restricted says whether only some clients may use a Service's address.
func Restricted(svc *renderer.ContivService, a netip.Addr) bool {
	return svc.LoadBalancerIPs.Contains(a) && len(SourceRanges(svc, a)) > 0
}

// SourceRanges are the clients that may use a load-balancer IP, as masked prefixes of its family. Nil means all
// clients: no range is of its family, or one range is everybody.
func SourceRanges(svc *renderer.ContivService, a netip.Addr) (out []netip.Prefix) {
	for _, r := range svc.LoadBalancerSourceRanges {
		switch {
		case r.Addr().Is4() != a.Is4():
		case r.Bits() == 0:
			return nil
		default:
			out = append(out, r.Masked())
		}
	}
	return out
}

// Endpoint is an endpoint as a renderer programs it.
type Endpoint struct {
	At    netip.AddrPort
	Local bool // on this node
}

// Compare orders endpoints by address and port, local ones first.
func (e Endpoint) Compare(o Endpoint) int {
	switch c := e.At.Compare(o.At); {
	case c != 0:
		return c
	case e.Local == o.Local:
		return 0
	case e.Local:
		return -1
	}
	return 1
}

// Endpoints returns the endpoints of list with a wanted address, sorted and without duplicates. It uses the space of
// room as far as that suffices.
func Endpoints(room []Endpoint, list []*renderer.ServiceBackend, wanted func(netip.Addr) bool) []Endpoint {
	set := slices.Grow(room[:0], len(list))
	ordered := true // each larger than the one before, as plugins/service lists them
	var last netip.AddrPort
	for _, b := range list {
		if a := b.Addr(); wanted(a) {
			at := netip.AddrPortFrom(a, b.Port)
			ordered = ordered && last.Compare(at) < 0
			set, last = append(set, Endpoint{at, b.Local}), at
		}
	}
	if ordered {
		return set
	}
	slices.SortFunc(set, Endpoint.Compare)
	return slices.CompactFunc(set, func(a, b Endpoint) bool { return a.At == b.At })
}
