package adapter

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/parallel"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// Functions are the pure functions of one renderer. They must be safe for concurrent calls.
type Functions struct {
	// Name is the first part of the names of the sink's owners.
	Name string

	// Service returns everything VPP must have for one Service. Its result may depend on those node fields that
	// NodeMatters compares. It may also depend on which of these addresses are in nodeIPs: the Service's own, and, if
	// the Service has node ports, this node's.
	Service func(svc *renderer.ContivService, node renderer.NodeState, nodeIPs *renderer.IPAddresses) (kv.Values, []model.Note)

	// Node returns everything that belongs to no Service.
	Node func(node renderer.NodeState, nodeIPs *renderer.IPAddresses, frontends, backends renderer.Interfaces) (kv.Values, []model.Note)

	// NodeIPs says that the result of Node depends on the addresses of all nodes.
	NodeIPs bool

	// NodeMatters says whether a change of the node can change the result of Service.
	NodeMatters func(old, now renderer.NodeState) bool

	// Concerns says whether this renderer serves a Service at all. While it serves none, Node is not called and its
	// values are removed. Nil: Node is always called.
	Concerns func(svc *renderer.ContivService) bool
}

// NodeOwner is the sink's owner of everything that belongs to no Service: "nat44/node".
func NodeOwner(name string) string { return name + "/node" }

// ServiceOwner is the sink's owner of a Service's values: "nat44/service/default/web".
func ServiceOwner(name string, id model.ServiceID) string { return name + "/service/" + id.String() }

// Renderer feeds a sink from Functions. Its calls never fail: what cannot be rendered becomes a note.
type Renderer struct {
	functions Functions
	sink      renderer.Sink
	node      renderer.NodeState
	nodeIPs   *renderer.IPAddresses
	frontends renderer.Interfaces
	backends  renderer.Interfaces
	services  map[model.ServiceID]*renderer.ContivService
	used      int // number of services for which Concerns is true
}

var (
	_ renderer.ServiceRendererAPI = (*Renderer)(nil)
	_ renderer.NodeRenderer       = (*Renderer)(nil)
	_ renderer.PortionRenderer    = (*Renderer)(nil)
)

// preallocator is an optional method of a sink: preallocate for that many values.
type preallocator interface{ Expect(values int) }

// New returns a renderer that has written nothing to its sink.
func New(functions Functions, sink renderer.Sink) *Renderer {
	return &Renderer{functions: functions, sink: sink, nodeIPs: renderer.NewIPAddresses(), services: map[model.ServiceID]*renderer.ContivService{}}
}

// AddService implements renderer.ServiceRendererAPI.
func (r *Renderer) AddService(service *renderer.ContivService) error {
	r.countUse(r.services[service.ID], -1)
	r.services[service.ID] = service
	r.countUse(service, 1)
	r.render(service)
	return nil
}

// countUse adjusts used by n if svc concerns the renderer, and renders the node when used becomes zero or ceases to be.
func (r *Renderer) countUse(svc *renderer.ContivService, n int) {
	if svc == nil || r.functions.Concerns == nil || !r.functions.Concerns(svc) {
		return
	}
	was := r.used > 0
	if r.used += n; was != (r.used > 0) {
		r.renderNode()
	}
}

// UpdateService implements renderer.ServiceRendererAPI. It ignores the other services: pure functions share nothing
// between services.
func (r *Renderer) UpdateService(_, newService *renderer.ContivService, _ []*renderer.ContivService) error {
	return r.AddService(newService)
}

// DeleteService implements renderer.ServiceRendererAPI.
func (r *Renderer) DeleteService(service *renderer.ContivService, _ []*renderer.ContivService) error {
	r.countUse(r.services[service.ID], -1)
	delete(r.services, service.ID)
	r.sink.Set(ServiceOwner(r.functions.Name, service.ID), nil, nil)
	return nil
}

// UpdateNodePortServices implements renderer.ServiceRendererAPI. It renders services with an address that became or
// ceased to be a node's; services with node ports if that address is this node's.
func (r *Renderer) UpdateNodePortServices(nodeIPs *renderer.IPAddresses, _ []*renderer.ContivService) error {
	old := r.nodeIPs
	r.nodeIPs = nodeIPs
	if r.functions.NodeIPs {
		r.renderNode()
	}
	own := differ(renderer.IPAddressesOf(r.node.IPs...), old, nodeIPs)
	for _, svc := range r.services {
		if svc.HasNodePort() && own || differ(svc.ClusterIPs, old, nodeIPs) || differ(svc.ExternalIPs, old, nodeIPs) {
			r.render(svc)
		}
	}
	return nil
}

// differ says whether some address is in exactly one of two sets.
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
	if r.functions.NodeMatters(old, node) {
		for _, svc := range r.services {
			r.render(svc)
		}
	}
	return nil
}

// Resync implements renderer.ServiceRendererAPI.
func (r *Renderer) Resync(ev *renderer.ResyncEventData) error {
	r.beginResync(ev)
	r.renderAll(ev.Services)
	return nil
}

// portion is the number of services rendered at a time. It is large enough that handing over costs little, and small
// enough that VPP does not wait long for the first.
const portion = 512

// ResyncInPortions implements renderer.PortionRenderer.
func (r *Renderer) ResyncInPortions(ev *renderer.ResyncEventData) (portions []func(), err error) {
	r.beginResync(ev)
	for some := range slices.Chunk(ev.Services, portion) {
		portions = append(portions, func() { r.renderAll(some) })
	}
	return portions, nil
}

// beginResync stores all facts of a resync and renders the node, but renders no service.
func (r *Renderer) beginResync(ev *renderer.ResyncEventData) {
	gone := r.services
	r.services = make(map[model.ServiceID]*renderer.ContivService, len(ev.Services))
	r.nodeIPs, r.frontends, r.backends, r.used = ev.NodeIPs, ev.FrontendIfs, ev.BackendIfs, 0
	for _, svc := range ev.Services {
		if r.functions.Concerns != nil && r.functions.Concerns(svc) {
			r.used++
		}
	}
	r.renderNode()
	if sink, ok := r.sink.(preallocator); ok {
		sink.Expect(2 * len(ev.Services)) // in most cases a mapping and a reject route each
	}
	for _, svc := range ev.Services {
		delete(gone, svc.ID)
		r.services[svc.ID] = svc
	}
	for id := range gone {
		r.sink.Set(ServiceOwner(r.functions.Name, id), nil, nil)
	}
}

// renderAll renders services on all cores and hands them to the sink in order.
func (r *Renderer) renderAll(services []*renderer.ContivService) {
	type rendered struct {
		values kv.Values
		notes  []model.Note
	}
	all := make([]rendered, len(services))
	parallel.Ordered(len(all), func(i int) { all[i].values, all[i].notes = r.functions.Service(services[i], r.node, r.nodeIPs) }, func(i int) {
		r.sink.Set(ServiceOwner(r.functions.Name, services[i].ID), all[i].values, all[i].notes)
	})
}

func (r *Renderer) render(svc *renderer.ContivService) {
	values, notes := r.functions.Service(svc, r.node, r.nodeIPs)
	r.sink.Set(ServiceOwner(r.functions.Name, svc.ID), values, notes)
}

func (r *Renderer) renderNode() {
	if r.functions.Concerns != nil && r.used == 0 {
		r.sink.Set(NodeOwner(r.functions.Name), nil, nil)
		return
	}
	values, notes := r.functions.Node(r.node, r.nodeIPs, r.frontends, r.backends)
	r.sink.Set(NodeOwner(r.functions.Name), values, notes)
}
