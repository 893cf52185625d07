package nat44

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/fan"
	"github.com/contiv-agent/contiv-agent/keyed"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/model/svcmodel"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// NodeOwner is the sink's owner of everything that belongs to no service.
const NodeOwner = "nat44/node"

// ServiceOwner is the sink's owner of a service's values: "nat44/service/default/web".
func ServiceOwner(id svcmodel.ID) string { return "nat44/service/" + id.String() }

// Renderer feeds a sink from Service and Node. Its calls never fail: what cannot be rendered is a note.
type Renderer struct {
	cfg       Config
	sink      renderer.Sink
	node      renderer.NodeState
	nodeIPs   *renderer.IPAddresses
	frontends renderer.Interfaces
	backends  renderer.Interfaces
	services  map[svcmodel.ID]*renderer.ContivService
}

var (
	_ renderer.ServiceRendererAPI = (*Renderer)(nil)
	_ renderer.NodeRenderer       = (*Renderer)(nil)
)

// expecter is a sink that is glad to hear how many values are to come.
type expecter interface{ Expect(values int) }

// New returns a renderer that has told its sink nothing yet; cfg must be valid.
func New(cfg Config, sink renderer.Sink) *Renderer {
	return &Renderer{cfg: cfg, sink: sink, nodeIPs: renderer.NewIPAddresses(), services: map[svcmodel.ID]*renderer.ContivService{}}
}

// AddService implements renderer.ServiceRendererAPI.
func (r *Renderer) AddService(service *renderer.ContivService) error {
	r.services[service.ID] = service
	r.render(service)
	return nil
}

// UpdateService implements renderer.ServiceRendererAPI. Services share nothing here: the others do not matter.
func (r *Renderer) UpdateService(_, newService *renderer.ContivService, _ []*renderer.ContivService) error {
	return r.AddService(newService)
}

// DeleteService implements renderer.ServiceRendererAPI.
func (r *Renderer) DeleteService(service *renderer.ContivService, _ []*renderer.ContivService) error {
	delete(r.services, service.ID)
	r.sink.Set(ServiceOwner(service.ID), nil, nil)
	return nil
}

// UpdateNodePortServices implements renderer.ServiceRendererAPI. Beside node ports of policy Local, which are mapped on
// every node's address, addresses that became or ceased to be a node's matter.
func (r *Renderer) UpdateNodePortServices(nodeIPs *renderer.IPAddresses, _ []*renderer.ContivService) error {
	old := r.nodeIPs
	r.nodeIPs = nodeIPs
	own := differ(renderer.IPAddressesOf(r.node.IPs...), old, nodeIPs)
	for _, svc := range r.services {
		if svc.HasNodePort() && (own || svc.TrafficPolicy == renderer.NodeLocal) || differ(svc.ClusterIPs, old, nodeIPs) || differ(svc.ExternalIPs, old, nodeIPs) {
			r.render(svc)
		}
	}
	return nil
}

// differ tells whether some address is in just one of two sets.
func differ(addrs, a, b *renderer.IPAddresses) bool {
	return slices.ContainsFunc(addrs.Addrs(), func(ip netip.Addr) bool { return a.Contains(ip) != b.Contains(ip) })
}

// UpdateLocalFrontendIfs implements renderer.ServiceRendererAPI.
func (r *Renderer) UpdateLocalFrontendIfs(_, newIfNames renderer.Interfaces) error {
	r.frontends = newIfNames
	r.renderNode()
	return nil
}

// UpdateLocalBackendIfs implements renderer.ServiceRendererAPI.
func (r *Renderer) UpdateLocalBackendIfs(_, newIfNames renderer.Interfaces) error {
	r.backends = newIfNames
	r.renderNode()
	return nil
}

// UpdateNode implements renderer.NodeRenderer.
func (r *Renderer) UpdateNode(node renderer.NodeState) error {
	old := r.node
	r.node = node
	r.renderNode()
	if old.Name != node.Name || !slices.Equal(old.IPs, node.IPs) || old.Loopback.Is4() != node.Loopback.Is4() {
		for _, svc := range r.services {
			r.render(svc)
		}
	}
	return nil
}

// Resync implements renderer.ServiceRendererAPI.
func (r *Renderer) Resync(ev *renderer.ResyncEventData) error {
	gone := r.services
	r.services = make(map[svcmodel.ID]*renderer.ContivService, len(ev.Services))
	r.nodeIPs, r.frontends, r.backends = ev.NodeIPs, ev.FrontendIfs, ev.BackendIfs
	r.renderNode()
	type rendered struct {
		values keyed.Values
		notes  []model.Note
	}
	all := make([]rendered, len(ev.Services))
	if sink, ok := r.sink.(expecter); ok {
		sink.Expect(2 * len(all)) // mostly a mapping and a refusal each
	}
	fan.Ordered(len(all), func(i int) { all[i].values, all[i].notes = Service(ev.Services[i], r.node, r.nodeIPs, r.cfg) }, func(i int) {
		svc := ev.Services[i]
		delete(gone, svc.ID)
		r.services[svc.ID] = svc
		r.sink.Set(ServiceOwner(svc.ID), all[i].values, all[i].notes)
	})
	for id := range gone {
		r.sink.Set(ServiceOwner(id), nil, nil)
	}
	return nil
}

func (r *Renderer) render(svc *renderer.ContivService) {
	values, notes := Service(svc, r.node, r.nodeIPs, r.cfg)
	r.sink.Set(ServiceOwner(svc.ID), values, notes)
}

func (r *Renderer) renderNode() {
	values, notes := Node(r.node, r.frontends, r.backends, r.cfg)
	r.sink.Set(NodeOwner, values, notes)
}
