// Package viproute is an example of a service renderer that is not built in. It translates nothing: it routes each cluster IP to the
// endpoints of the Service, or to the nodes that have them.
//
//	cluster IP ─▶ route to the endpoint (this node), or by the overlay to the endpoint's node
//
// An endpoint must accept packets to the cluster IP, as servers behind a load balancer with direct server return do.
//
// Invariant: the values of a Service depend only on that Service and on the node's state.
package viproute

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/adapter"
)

// Name is the first part of the owners of this renderer's values: "viproute/service/default/web".
const Name = "viproute"

// New returns the renderer. It fits agent.Config.Renderers.
func New(sink renderer.Sink) renderer.ServiceRendererAPI {
	return adapter.New(adapter.Functions{
		Name:    Name,
		Service: Service,
		Node: func(renderer.NodeState, *renderer.IPAddresses, renderer.Interfaces, renderer.Interfaces) (kv.Values, []model.Note) {
			return nil, nil // every value belongs to a Service
		},
		NodeMatters: func(old, now renderer.NodeState) bool {
			return old.Name != now.Name || old.Overlay != now.Overlay || !slices.EqualFunc(old.Remote, now.Remote, renderer.RemoteNode.Equal)
		},
	}, sink)
}

// Service returns one route for each cluster IP and each endpoint, or node with endpoints, of its family. An endpoint that cannot be
// routed to is left out, with a note that names it.
func Service(svc *renderer.ContivService, node renderer.NodeState, _ *renderer.IPAddresses) (kv.Values, []model.Note) {
	values, notes := kv.Values{}, adapter.Notes{Of: svc.ID}
	for _, port := range svc.PortNames() {
		for _, backend := range svc.Backends[port] {
			hop, iface, why := nextHop(svc, backend, node)
			if why != "" {
				notes.Add(true, "endpoint %s is not served: %s", backend.Addr(), why)
				continue
			}
			for _, vip := range svc.ClusterIPs.Addrs() {
				if vip.Is4() == backend.Addr().Is4() {
					values.Put(&l3.Route{DstNetwork: netip.PrefixFrom(vip, vip.BitLen()).String(), NextHopAddr: hop.String(), OutgoingInterface: iface})
				}
			}
		}
	}
	return values, notes.List
}

// nextHop returns where packets to an endpoint go next, and by which interface ("": by the endpoint's route); or why they cannot.
func nextHop(svc *renderer.ContivService, backend *renderer.ServiceBackend, node renderer.NodeState) (hop netip.Addr, iface, why string) {
	if backend.Local {
		return backend.Addr(), "", ""
	}
	name := svc.NodeOf(backend)
	i := slices.IndexFunc(node.Remote, func(n renderer.RemoteNode) bool { return n.Name == name })
	if name == "" || i < 0 {
		return hop, "", "its node is not known"
	}
	if node.Overlay == "" {
		return hop, "", "this node has no overlay"
	}
	for _, a := range node.Remote[i].IPs {
		if a.Is4() == backend.Addr().Is4() {
			return a, node.Overlay, ""
		}
	}
	return hop, "", "node " + name + " has no address of its family"
}
