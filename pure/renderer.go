package pure

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/fan"
	"github.com/contiv-agent/contiv-agent/keyed"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/model/svcmodel"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// Functions are what one renderer makes of the facts. They may be called by many goroutines at once.
type Functions struct {
	// Name begins the names of the sink's owners.
	Name string

	// Service is everything VPP must have for one service. It may go by the node's addresses as NodeMatters tells, and by whether its
	// own addresses, with node ports this node's, and with policy Local all, are among those of all nodes.
	Service func(svc *renderer.ContivService, node renderer.NodeState, nodeIPs *renderer.IPAddresses) (keyed.Values, []model.Note)

	// Node is everything that belongs to no service.
	Node func(node renderer.NodeState, nodeIPs *renderer.IPAddresses, frontends, backends renderer.Interfaces) (keyed.Values, []model.Note)

	// NodeIPs tells that Node goes by the addresses of all nodes.
	NodeIPs bool

	// NodeMatters tells whether Service goes by anything of the node that has changed.
	NodeMatters func(old, now renderer.NodeState) bool

	// Concerns tells whether a service is this renderer's business at all. Without any that is, there is nothing of Node either.
	// Nil: Node is there always.
	Concerns func(svc *renderer.ContivService) bool
}

// NodeOwner is the sink's owner of everything that belongs to no service: "nat44/node".
func NodeOwner(name string) string { return name + "/node" }

// ServiceOwner is the sink's owner of a service's values: "nat44/service/default/web".
func ServiceOwner(name string, id svcmodel.ID) string { return name + "/service/" + id.String() }

// Renderer feeds a sink from Functions. Its calls never fail: what cannot be rendered is a note.
type Renderer struct {
	does      Functions
	sink      renderer.Sink
	node      renderer.NodeState
	nodeIPs   *renderer.IPAddresses
	frontends renderer.Interfaces
	backends  renderer.Interfaces
	services  map[svcmodel.ID]*renderer.ContivService
	used      int // services that Concerns
}

var (
	_ renderer.ServiceRendererAPI = (*Renderer)(nil)
	_ renderer.NodeRenderer       = (*Renderer)(nil)
	_ renderer.PortionRenderer    = (*Renderer)(nil)
)

// expecter is a sink that is glad to hear how many values are to come.
type expecter interface{ Expect(values int) }

// New returns a renderer that has told its sink nothing yet.
func New(does Functions, sink renderer.Sink) *Renderer {
	return &Renderer{does: does, sink: sink, nodeIPs: renderer.NewIPAddresses(), services: map[svcmodel.ID]*renderer.ContivService{}}
}

// AddService implements renderer.ServiceRendererAPI.
func (r *Renderer) AddService(service *renderer.ContivService) error {
	r.count(r.services[service.ID], -1)
	r.services[service.ID] = service
	r.count(service, 1)
	r.render(service)
	return nil
}

// count keeps used, and what Node makes of it.
func (r *Renderer) count(svc *renderer.ContivService, n int) {
	if svc == nil || r.does.Concerns == nil || !r.does.Concerns(svc) {
		return
	}
	was := r.used > 0
	if r.used += n; was != (r.used > 0) {
		r.renderNode()
	}
}

// UpdateService implements renderer.ServiceRendererAPI. Services share nothing here: the others do not matter.
func (r *Renderer) UpdateService(_, newService *renderer.ContivService, _ []*renderer.ContivService) error {
	return r.AddService(newService)
}

// DeleteService implements renderer.ServiceRendererAPI.
func (r *Renderer) DeleteService(service *renderer.ContivService, _ []*renderer.ContivService) error {
	r.count(r.services[service.ID], -1)
	delete(r.services, service.ID)
	r.sink.Set(ServiceOwner(r.does.Name, service.ID), nil, nil)
	return nil
}

// UpdateNodePortServices implements renderer.ServiceRendererAPI. Beside node ports of policy Local, which are translated on every
// node's address, addresses that became or ceased to be a node's matter.
func (r *Renderer) UpdateNodePortServices(nodeIPs *renderer.IPAddresses, _ []*renderer.ContivService) error {
	old := r.nodeIPs
	r.nodeIPs = nodeIPs
	if r.does.NodeIPs {
		r.renderNode()
	}
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
	if r.does.NodeMatters(old, node) {
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
	r.nodeIPs, r.frontends, r.backends, r.used = ev.NodeIPs, ev.FrontendIfs, ev.BackendIfs, 0
	for _, svc := range ev.Services {
		if r.does.Concerns != nil && r.does.Concerns(svc) {
			r.used++
		}
	}
	r.renderNode()
	if sink, ok := r.sink.(expecter); ok {
		sink.Expect(2 * len(ev.Services)) // mostly a mapping and a refusal each
	}
	for _, svc := range ev.Services {
		delete(gone, svc.ID)
		r.services[svc.ID] = svc
	}
	for id := range gone {
		r.sink.Set(ServiceOwner(r.does.Name, id), nil, nil)
	}
}

// renderAll renders services on all cores, and hands them over in order.
func (r *Renderer) renderAll(services []*renderer.ContivService) {
	type rendered struct {
		values keyed.Values
		notes  []model.Note
	}
	all := make([]rendered, len(services))
	fan.Ordered(len(all), func(i int) { all[i].values, all[i].notes = r.does.Service(services[i], r.node, r.nodeIPs) }, func(i int) {
		r.sink.Set(ServiceOwner(r.does.Name, services[i].ID), all[i].values, all[i].notes)
	})
}

func (r *Renderer) render(svc *renderer.ContivService) {
	values, notes := r.does.Service(svc, r.node, r.nodeIPs)
	r.sink.Set(ServiceOwner(r.does.Name, svc.ID), values, notes)
}

func (r *Renderer) renderNode() {
	if r.does.Concerns != nil && r.used == 0 {
		r.sink.Set(NodeOwner(r.does.Name), nil, nil)
		return
	}
	values, notes := r.does.Node(r.node, r.nodeIPs, r.frontends, r.backends)
	r.sink.Set(NodeOwner(r.does.Name), values, notes)
}
