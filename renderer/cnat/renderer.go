package cnat

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/adapter"
)

// Renderer feeds a sink from Service and Node. Its calls never fail: an object that cannot be rendered gets a note.
type Renderer struct{ *adapter.Renderer }

// New returns a renderer that has written nothing to its sink; cfg must be valid.
func New(cfg Config, sink renderer.Sink) *Renderer {
	return &Renderer{adapter.New(adapter.Functions{
		Name: Name,
		Service: func(svc *renderer.ContivService, node renderer.NodeState, nodeIPs *renderer.IPAddresses) (kv.Values, []model.Note) {
			return Service(svc, node, nodeIPs, cfg)
		},
		Node: func(node renderer.NodeState, nodeIPs *renderer.IPAddresses, frontends, backends renderer.Interfaces) (kv.Values, []model.Note) {
			return Node(node, nodeIPs, frontends, backends, cfg)
		},
		NodeIPs: true, // they are excluded from source NAT
		NodeMatters: func(old, now renderer.NodeState) bool {
			return !slices.Equal(old.IPs, now.IPs) || !slices.Equal(old.UplinkIPs, now.UplinkIPs) || !slices.Equal(old.NoNodePorts, now.NoNodePorts) || old.Refusal != now.Refusal
		},
		// A cluster without Services of a served family has no values of cnat, which VPP may lack.
		Concerns: func(svc *renderer.ContivService) bool {
			return slices.ContainsFunc(svc.ClusterIPs.Addrs(), cfg.Has) || slices.ContainsFunc(svc.ExternalIPs.Addrs(), cfg.Has)
		},
	}, sink)}
}
