package calc

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/calc/labelindex"
	"github.com/contiv-agent/contiv-agent/calc/passthru"
	"github.com/contiv-agent/contiv-agent/calc/route"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Config identifies the node and the origin of routes.
type Config struct {
	Node string // this node's name
	// NodeResources: routes and tunnels use nodes' addresses from SetHost; otherwise from SetHostIP.
	NodeResources bool
	// WorkloadRoutes: routes to workloads are made from all workloads' addresses (Felix's RouteSource WorkloadIPs);
	// otherwise from blocks, and from this node's workloads.
	WorkloadRoutes bool
}

// Graph is the calculation graph of one node. It is not safe for concurrent use. An update changes the graph, costs
// time in proportion to the change, and sends nothing; Flush returns the messages.
//
//	SetWorkload, SetHostEndpoint ─┬─▶ sets (labelindex: all endpoints × rules' selectors) ── members of each IP set ─┐
//	SetNetworkSet, SetSlice ──────┘        ▲ acquire, release                                                        │
//	SetPolicy, SetProfile, SetTier ──▶ policies (labelindex: local endpoints × policies' selectors)                  ▼
//	   local endpoints ──────────────▶ endpoints: tiers and policies of each, in order ───────────────────────────▶ Flush
//	SetPool, SetBlock, SetHost, … ───▶ routes, vteps, passthru, encapsulation, settings ─────────────────────────────┘
type Graph struct {
	cfg       Config
	sets      *sets
	policies  *policies
	endpoints *endpoints
	routes    *route.Routes
	vteps     *route.VTEPs
	passthru  *passthru.Objects
	settings  *settings
	encap     encapsulation

	items     labelindex.Handles
	workloads workloadNames
	hosts     map[model.HostEndpointID]uint32
	netsets   map[string]uint32

	inSync, saidInSync bool
}

// New returns an empty graph.
func New(cfg Config) *Graph {
	s := newSets()
	p := newPolicies(s)
	return &Graph{
		cfg: cfg, sets: s, policies: p, endpoints: newEndpoints(p), routes: route.New(cfg.Node), vteps: route.NewVTEPs(),
		passthru: passthru.New(), settings: newSettings(), encap: encapsulation{pools: map[string]model.Pool{}},
		workloads: newWorkloadNames(), hosts: map[model.HostEndpointID]uint32{}, netsets: map[string]uint32{},
	}
}

// item returns the number of an endpoint or network set, and assigns one if it has none.
func item[K comparable](g *Graph, numbers map[K]uint32, key K) uint32 {
	h, ok := numbers[key]
	if !ok {
		h = g.items.Assign()
		numbers[key] = h
	}
	return h
}

func dropItem[K comparable](g *Graph, numbers map[K]uint32, key K) {
	if h, ok := numbers[key]; ok {
		delete(numbers, key)
		g.dropNumber(h)
	}
}

func (g *Graph) dropNumber(h uint32) {
	g.sets.dropItem(h)
	g.items.GiveBack(h)
}

// SetWorkload puts a workload endpoint of any node; nil removes it. Values passed to a Graph must not change
// afterwards.
func (g *Graph) SetWorkload(id model.WorkloadID, w *model.WorkloadEndpoint) {
	local := id.Node == g.cfg.Node
	if w == nil {
		if h, ok := g.workloads.dropWorkload(id); ok {
			g.dropNumber(h)
		}
		g.routes.SetWorkload(id, nil)
		if local {
			g.endpoints.removeEndpoint(workloadKey(id))
		}
		return
	}
	g.sets.setItem(g.workloads.number(id, &g.items), w.Labels, w.Profiles, contentOf(w.Nets, w.Ports))
	if local || g.cfg.WorkloadRoutes {
		g.routes.SetWorkload(id, w.Nets)
	}
	if local {
		g.endpoints.setWorkload(workloadKey(id), w)
	}
}

// SetHostEndpoint puts a host endpoint of any node; nil removes it.
func (g *Graph) SetHostEndpoint(id model.HostEndpointID, h *model.HostEndpoint) {
	local := id.Node == g.cfg.Node
	if h == nil {
		dropItem(g, g.hosts, id)
		if local {
			g.endpoints.removeEndpoint(hostKey(id))
		}
		return
	}
	nets := make([]netip.Prefix, len(h.Addrs))
	for i, a := range h.Addrs {
		nets[i] = netip.PrefixFrom(a, a.BitLen())
	}
	g.sets.setItem(item(g, g.hosts, id), h.Labels, h.Profiles, contentOf(nets, h.Ports))
	if local {
		g.endpoints.setHost(hostKey(id), h)
	}
}

// SetNetworkSet puts a network set; nil removes it.
func (g *Graph) SetNetworkSet(name string, n *model.NetworkSet) {
	if n == nil {
		dropItem(g, g.netsets, name)
		return
	}
	g.sets.setItem(item(g, g.netsets, name), n.Labels, n.Profiles, contentOf(n.Nets, nil))
}

// SetSlice puts an EndpointSlice; nil removes it.
func (g *Graph) SetSlice(id model.SliceID, s *model.EndpointSlice) {
	g.sets.services.setSlice(id, s, g.sets.noteMember)
}

// SetPolicy puts a policy of any kind; nil removes it.
func (g *Graph) SetPolicy(id model.PolicyID, p *model.Policy) { g.policies.setPolicy(id, p) }

// SetTier puts a tier; nil removes it.
func (g *Graph) SetTier(name string, t *model.Tier) { g.policies.setTier(name, t) }

// SetProfile puts a profile; nil removes it. Endpoints that name a missing profile get one that denies everything.
func (g *Graph) SetProfile(name string, p *model.Profile) {
	g.policies.setProfile(name, p)
	g.passthru.SetProfile(name, p)
}

// SetPool puts a pool of addresses; nil removes it.
func (g *Graph) SetPool(id string, p *model.Pool) {
	g.routes.SetPool(id, p)
	g.passthru.SetPool(id, p)
	if p == nil {
		delete(g.encap.pools, id)
		return
	}
	g.encap.pools[id] = *p
}

// SetBlock puts a block of a pool; nil removes it.
func (g *Graph) SetBlock(block netip.Prefix, b *model.Block) {
	if !g.cfg.WorkloadRoutes {
		g.routes.SetBlock(block, b)
	}
}

// SetHostIP puts a node's IPv4 address; the zero Addr, or one that is not IPv4, removes it.
func (g *Graph) SetHostIP(node string, a netip.Addr) {
	if a = a.Unmap(); !a.Is4() {
		a = netip.Addr{}
	}
	g.passthru.SetHostIP(node, a)
	if !g.cfg.NodeResources {
		g.routes.SetHost(node, &model.Host{Name: node, IPv4: a})
		g.vteps.SetHost(node, a, netip.Addr{})
	}
}

// SetHost puts a node; nil removes it.
func (g *Graph) SetHost(node string, h *model.Host) {
	g.passthru.SetHost(node, h)
	if !g.cfg.NodeResources {
		return
	}
	g.routes.SetHost(node, h)
	if h == nil {
		h = &model.Host{}
	}
	g.vteps.SetHost(node, h.IPv4, h.IPv6)
}

// SetService puts a Service; nil removes it. It is passed to the data plane and affects nothing here.
func (g *Graph) SetService(id model.ServiceID, s *model.Service) { g.passthru.SetService(id, s) }

// SetBGPConfig puts the cluster's default BGP configuration; nil removes it. It is passed to the data plane.
func (g *Graph) SetBGPConfig(c *model.BGPConfig) { g.passthru.SetBGP(c) }

// SetWireguard puts a node's WireGuard configuration; nil removes it.
func (g *Graph) SetWireguard(node string, w *model.Wireguard) { g.passthru.SetWireguard(node, w) }

// SetConfig puts a parameter of Felix's configuration for all nodes; "" removes it.
func (g *Graph) SetConfig(name, value string) { g.settings.setValue(g.settings.global, name, value) }

// SetHostConfig puts a parameter for one node; "" removes it.
func (g *Graph) SetHostConfig(node, name, value string) {
	if node == g.cfg.Node {
		g.settings.setValue(g.settings.host, name, value)
	}
	g.vteps.SetConfig(node, name, value)
}

// InSync says that the initial state is complete. From then on policies and endpoints are sent.
func (g *Graph) InSync() { g.inSync = true }

// Flush returns the messages that lead the data plane from the state sent to the present state. Everything that a
// message refers to precedes it. The messages must not be changed. Before InSync there are none about policies,
// endpoints and configuration: they would be wrong, and many.
func (g *Graph) Flush() []*felix.ToDataplane {
	var out []*felix.ToDataplane
	if g.inSync {
		out = append(out, g.settings.flushConfig()...)
		out = g.flushPolicies(out)
	}
	before, after := g.passthru.Flush()
	routes, noRoutes := g.routes.FlushRoutes()
	vteps, noVTEPs := g.vteps.Flush()
	for _, list := range [][]*felix.ToDataplane{before, noRoutes, noVTEPs, vteps, routes, after} {
		out = append(out, list...)
	}
	if !g.inSync {
		return out
	}
	out = append(out, g.encap.flushEncapsulation(g.settings.sent.Config)...)
	if !g.saidInSync {
		g.saidInSync = true
		out = append(out, &felix.ToDataplane{Payload: &felix.ToDataplane_InSync{InSync: &felix.InSync{}}})
	}
	return out
}

// flushPolicies appends sets, policies, profiles and endpoints; then their removals, in reverse order.
func (g *Graph) flushPolicies(out []*felix.ToDataplane) []*felix.ToDataplane {
	rules, noRules := g.policies.flushAll()
	sets, noSets := g.sets.flushSets()
	endpoints, noEndpoints := g.endpoints.flushEndpoints()
	for _, list := range [][]*felix.ToDataplane{sets, rules, endpoints, noEndpoints, noRules, noSets} {
		out = append(out, list...)
	}
	return out
}

// Origin returns the policy that was sent under a name, as of the latest SetPolicy, to explain which object decided. It
// is a copy in which empty lists are nil. The RuleId of a rule in a message says which of these rules it is.
func (g *Graph) Origin(tier, name string) (*model.Policy, bool) {
	p := g.policies.onWire[policyKey{tier, name}]
	if p == nil || p.selector == nil {
		return nil, false
	}
	object := p.object
	var all []model.Rule
	object.InboundRules, object.OutboundRules = p.rules.Unpack(&all)
	return &object, true
}

// Notes name, for each active policy and profile, the parts that could not be understood, in a stable order.
func (g *Graph) Notes() []model.Note {
	var out []model.Note
	for _, list := range g.policies.notes {
		out = append(out, list...)
	}
	slices.SortStableFunc(out, func(a, b model.Note) int { return a.Ref.Compare(b.Ref) })
	return out
}

// Pending calls f for each policy that the next Flush looks at, in no order. Needed is false if the policy applies to no
// endpoint of this node or was removed; otherwise the data plane will have it.
func (g *Graph) Pending(f func(id model.PolicyID, needed bool)) {
	for id, p := range g.policies.dirty {
		f(id, p.needed())
	}
}

// ClosePolicy makes a policy deny everything in its directions, in place of its rules; false restores its rules. A
// policy stays closed when it changes, until it is deleted.
func (g *Graph) ClosePolicy(id model.PolicyID, closed bool) {
	if p := g.policies.byID[id]; p != nil && p.closed != closed {
		p.closed = closed
		g.policies.dirty[id] = p
	}
}
