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
	_ renderer.PortionRenderer    = (*Renderer)(nil)
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
	if old.Name != node.Name || !slices.Equal(old.IPs, node.IPs) || !slices.Equal(old.NoNodePorts, node.NoNodePorts) ||
		old.Loopback.Is4() != node.Loopback.Is4() {
		for _, svc := range r.services {
			r.render(svc)
		}
	}
	return nil
}

// Resync implements renderer.ServiceRendererAPI.
func (r *Renderer) Resync(ev *renderer.ResyncEventData) error {
	r.begin(ev)
	r.renderAll(ev.Services)
	return nil
}

// portion is how many services are rendered at a time: enough that handing them over costs nothing, few enough that VPP
// does not wait long for the first.
const portion = 512

// ResyncInPortions implements renderer.PortionRenderer.
func (r *Renderer) ResyncInPortions(ev *renderer.ResyncEventData) (portions []func(), err error) {
	r.begin(ev)
	for some := range slices.Chunk(ev.Services, portion) {
		portions = append(portions, func() { r.renderAll(some) })
	}
	return portions, nil
}

// begin takes over all of a resync but the values of services.
func (r *Renderer) begin(ev *renderer.ResyncEventData) {
	gone := r.services
	r.services = make(map[svcmodel.ID]*renderer.ContivService, len(ev.Services))
	r.nodeIPs, r.frontends, r.backends = ev.NodeIPs, ev.FrontendIfs, ev.BackendIfs
	r.renderNode()
	if sink, ok := r.sink.(expecter); ok {
		sink.Expect(2 * len(ev.Services)) // mostly a mapping and a refusal each
	}
	for _, svc := range ev.Services {
		delete(gone, svc.ID)
		r.services[svc.ID] = svc
	}
	for id := range gone {
		r.sink.Set(ServiceOwner(id), nil, nil)
	}
}

// renderAll renders services on all cores, and hands them over in order.
func (r *Renderer) renderAll(services []*renderer.ContivService) {
	type rendered struct {
		values keyed.Values
		notes  []model.Note
	}
	all := make([]rendered, len(services))
	fan.Ordered(len(all), func(i int) { all[i].values, all[i].notes = Service(services[i], r.node, r.nodeIPs, r.cfg) }, func(i int) {
		r.sink.Set(ServiceOwner(services[i].ID), all[i].values, all[i].notes)
	})
}

func (r *Renderer) render(svc *renderer.ContivService) {
	values, notes := Service(svc, r.node, r.nodeIPs, r.cfg)
	r.sink.Set(ServiceOwner(svc.ID), values, notes)
}

func (r *Renderer) renderNode() {
	values, notes := Node(r.node, r.frontends, r.backends, r.cfg)
	r.sink.Set(NodeOwner, values, notes)
}
