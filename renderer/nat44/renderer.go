package nat44

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
		Node: func(node renderer.NodeState, _ *renderer.IPAddresses, frontends, backends renderer.Interfaces) (kv.Values, []model.Note) {
			return Node(node, frontends, backends, cfg)
		},
		NodeMatters: func(old, now renderer.NodeState) bool {
			return old.Name != now.Name || !slices.Equal(old.IPs, now.IPs) || !slices.Equal(old.NoNodePorts, now.NoNodePorts) || !slices.Equal(old.ServiceCIDRs, now.ServiceCIDRs) ||
				old.Loopback.Is4() != now.Loopback.Is4() || old.Refusal != now.Refusal
		},
	}, sink)}
}
