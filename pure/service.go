package pure

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/keyed"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/model/svcmodel"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// Notes is what is to be said about one service, each reason once.
type Notes struct {
	Of   svcmodel.ID
	List []model.Note
}

// Add says something; refused tells that it is about what is not served.
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

// DropOwnPods puts a route of last resort for each pod CIDR of this node in a family: a packet to a pod without a route is dropped. By the
// default route it would leave the node with another source address and a session, and the session would outlast the pod's next route.
// A range that pods of another node are in as well is not this node's alone, and gets none. It returns the ranges that have one.
func DropOwnPods(values keyed.Values, node renderer.NodeState, family func(netip.Addr) bool) (dropped []netip.Prefix) {
	for _, own := range node.PodCIDRs {
		if family(own.Addr()) && !slices.ContainsFunc(node.RemotePodCIDRs, own.Overlaps) {
			dropped = append(dropped, own)
			values.Put(&contivl3.RejectRoute{DstNetwork: own.Masked().String(), Action: contivl3.RejectRoute_DROP, LastResort: true})
		}
	}
	return dropped
}

// Refuse puts a reject route for each address of the service that is served, so that what is not translated is answered. A route
// to a node or a pod is somebody else's, and a refusal would take its place.
func Refuse(values keyed.Values, svc *renderer.ContivService, nodeIPs *renderer.IPAddresses, served func(netip.Addr) bool) {
	for _, addrs := range []*renderer.IPAddresses{svc.ClusterIPs, svc.ExternalIPs} {
		for _, a := range addrs.Addrs() {
			if served(a) && !nodeIPs.Contains(a) && !svc.PodIPs.Contains(a) {
				values.Put(&contivl3.RejectRoute{DstNetwork: netip.PrefixFrom(a, a.BitLen()).String()})
			}
		}
	}
}

// Restricted tells whether a service's address may be used by some clients only.
func Restricted(svc *renderer.ContivService, a netip.Addr) bool {
	return svc.LoadBalancerIPs.Contains(a) && len(SourceRanges(svc, a)) > 0
}

// SourceRanges are the clients that may use a load balancer's address, of its family and without bits beyond their length; nil:
// all may. That is so if there are none of its family, or one of them is everybody.
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

// Endpoint is one on its way into VPP.
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

// Endpoints are the wanted ones of a list, sorted, each once. They are put into room as far as they fit.
func Endpoints(room []Endpoint, list []*renderer.ServiceBackend, wanted func(netip.Addr) bool) []Endpoint {
	set := room[:0]
	for _, b := range list {
		if a := b.Addr(); wanted(a) {
			set = append(set, Endpoint{netip.AddrPortFrom(a, b.Port), b.Local})
		}
	}
	slices.SortFunc(set, Endpoint.Compare)
	return slices.CompactFunc(set, func(a, b Endpoint) bool { return a.At == b.At })
}
