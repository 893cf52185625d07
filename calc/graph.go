package calc

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Config says whose graph it is.
type Config struct {
	Node string // this node's name
	// NodeResources: routes and tunnels take nodes' addresses from SetHost; otherwise from SetHostIP.
	NodeResources bool
	// WorkloadRoutes: routes to workloads come from all workloads' addresses (Felix's RouteSource WorkloadIPs);
	// otherwise from blocks, and from this node's workloads.
	WorkloadRoutes bool
}

// Graph is the calculation graph of one node. It is not safe for concurrent use. Updates change what it knows, cost what
// they change, and send nothing; Flush sends.
//
//	SetWorkload, SetHostEndpoint ─┬─▶ sets (labelIndex: everyone × rules' selectors) ── who is in which IP set ──┐
//	SetNetworkSet, SetSlice ──────┘        ▲ acquire, release                                                    │
//	SetPolicy, SetProfile, SetTier ──▶ policies (labelIndex: local endpoints × policies' selectors)              ▼
//	   local endpoints ──────────────▶ endpoints: tiers and policies of each, in order ───────────────────────▶ Flush
//	SetPool, SetBlock, SetHost, … ───▶ routes, vteps, passthru, encapsulation, settings ─────────────────────────┘
type Graph struct {
	cfg       Config
	sets      *sets
	policies  *policies
	endpoints *endpoints
	routes    *routes
	vteps     *vteps
	passthru  *passthru
	settings  *settings
	encap     encapsulation

	items     handles
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
		cfg: cfg, sets: s, policies: p, endpoints: newEndpoints(p), routes: newRoutes(cfg.Node), vteps: newVTEPs(),
		passthru: newPassthru(), settings: newSettings(), encap: encapsulation{pools: map[string]model.Pool{}},
		workloads: newWorkloadNames(), hosts: map[model.HostEndpointID]uint32{}, netsets: map[string]uint32{},
	}
}

// item returns the number of an endpoint or network set, giving it one if need be.
func item[K comparable](g *Graph, numbers map[K]uint32, key K) uint32 {
	h, ok := numbers[key]
	if !ok {
		h = g.items.take()
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
	g.items.give(h)
}

// SetWorkload gives a workload endpoint of any node; nil takes it away. Values given to a Graph must not change any more.
func (g *Graph) SetWorkload(id model.WorkloadID, w *model.WorkloadEndpoint) {
	local := id.Node == g.cfg.Node
	if w == nil {
		if h, ok := g.workloads.drop(id); ok {
			g.dropNumber(h)
		}
		g.routes.setWorkload(id, nil)
		if local {
			g.endpoints.remove(workloadKey(id))
		}
		return
	}
	g.sets.setItem(g.workloads.number(id, &g.items), w.Labels, w.Profiles, contentOf(w.Nets, w.Ports))
	if local || g.cfg.WorkloadRoutes {
		g.routes.setWorkload(id, w.Nets)
	}
	if local {
		g.endpoints.setWorkload(workloadKey(id), w)
	}
}

// SetHostEndpoint gives a host endpoint of any node; nil takes it away.
func (g *Graph) SetHostEndpoint(id model.HostEndpointID, h *model.HostEndpoint) {
	local := id.Node == g.cfg.Node
	if h == nil {
		dropItem(g, g.hosts, id)
		if local {
			g.endpoints.remove(hostKey(id))
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

// SetNetworkSet gives a network set; nil takes it away.
func (g *Graph) SetNetworkSet(name string, n *model.NetworkSet) {
	if n == nil {
		dropItem(g, g.netsets, name)
		return
	}
	g.sets.setItem(item(g, g.netsets, name), n.Labels, n.Profiles, contentOf(n.Nets, nil))
}

// SetSlice gives an EndpointSlice; nil takes it away.
func (g *Graph) SetSlice(id model.SliceID, s *model.EndpointSlice) {
	g.sets.services.setSlice(id, s, g.sets.note)
}

// SetPolicy gives a policy of any kind; nil takes it away.
func (g *Graph) SetPolicy(id model.PolicyID, p *model.Policy) { g.policies.setPolicy(id, p) }

// SetTier gives a tier; nil takes it away.
func (g *Graph) SetTier(name string, t *model.Tier) { g.policies.setTier(name, t) }

// SetProfile gives a profile; nil takes it away. Endpoints that name it then get a profile that denies everything.
func (g *Graph) SetProfile(name string, p *model.Profile) {
	g.policies.setProfile(name, p)
	g.passthru.setProfile(name, p)
}

// SetPool gives a pool of addresses; nil takes it away.
func (g *Graph) SetPool(id string, p *model.Pool) {
	g.routes.setPool(id, p)
	if p == nil {
		delete(g.encap.pools, id)
		g.passthru.pools.remove(id)
		return
	}
	g.encap.pools[id] = *p
	g.passthru.pools.set(id, *p)
}

// SetBlock gives a block of a pool; nil takes it away.
func (g *Graph) SetBlock(block netip.Prefix, b *model.Block) {
	if !g.cfg.WorkloadRoutes {
		g.routes.setBlock(block, b)
	}
}

// SetHostIP gives a node's IPv4 address; the zero Addr, or one that is not IPv4, takes it away.
func (g *Graph) SetHostIP(node string, a netip.Addr) {
	if a = a.Unmap(); !a.Is4() {
		a = netip.Addr{}
	}
	setOrRemove(g.passthru.hostV4, node, a, a.IsValid())
	if !g.cfg.NodeResources {
		g.routes.setHost(node, &model.Host{Name: node, IPv4: a})
		g.vteps.setHost(node, a, netip.Addr{})
	}
}

// SetHost gives a node; nil takes it away.
func (g *Graph) SetHost(node string, h *model.Host) {
	g.passthru.setHost(node, h)
	if !g.cfg.NodeResources {
		return
	}
	g.routes.setHost(node, h)
	if h == nil {
		h = &model.Host{}
	}
	g.vteps.setHost(node, h.IPv4, h.IPv6)
}

// SetService gives a Service; nil takes it away. It is told to the data plane and decides nothing here.
func (g *Graph) SetService(id model.ServiceID, s *model.Service) {
	if s == nil {
		g.passthru.services.remove(id)
		return
	}
	g.passthru.services.set(id, s)
}

// SetBGPConfig gives the cluster's default BGP configuration; nil takes it away. It is told to the data plane.
func (g *Graph) SetBGPConfig(c *model.BGPConfig) { g.passthru.setBGP(c) }

// SetWireguard gives a node's WireGuard configuration; nil takes it away.
func (g *Graph) SetWireguard(node string, w *model.Wireguard) { g.passthru.setWireguard(node, w) }

// SetConfig gives a parameter of Felix's configuration that holds for all nodes; "" takes it away.
func (g *Graph) SetConfig(name, value string) { g.settings.set(g.settings.global, name, value) }

// SetHostConfig gives a parameter of one node's; "" takes it away.
func (g *Graph) SetHostConfig(node, name, value string) {
	if node == g.cfg.Node {
		g.settings.set(g.settings.host, name, value)
	}
	g.vteps.setConfig(node, name, value)
}

// InSync says that all there was at the start has been given. From then on policies and endpoints are sent.
func (g *Graph) InSync() { g.inSync = true }

// Flush returns the messages that bring the data plane from what was sent to what is, in an order in which everything a
// message refers to is there before. They must not be changed. Before InSync there is nothing about policies, endpoints
// and configuration: it would be wrong, and large.
func (g *Graph) Flush() []*felix.ToDataplane {
	var out []*felix.ToDataplane
	if g.inSync {
		out = append(out, g.settings.flush()...)
		out = g.flushPolicies(out)
	}
	before, after := g.passthru.flush()
	routes, noRoutes := g.routes.flush()
	vteps, noVTEPs := g.vteps.wanted.flush(strings.Compare, vtepUpdate, vtepRemove)
	for _, list := range [][]*felix.ToDataplane{before, noRoutes, noVTEPs, vteps, routes, after} {
		out = append(out, list...)
	}
	if !g.inSync {
		return out
	}
	out = append(out, g.encap.flush(g.settings.sent.Config)...)
	if !g.saidInSync {
		g.saidInSync = true
		out = append(out, &felix.ToDataplane{Payload: &felix.ToDataplane_InSync{InSync: &felix.InSync{}}})
	}
	return out
}

// flushPolicies appends sets, policies, profiles and endpoints; then what goes, in the reverse order.
func (g *Graph) flushPolicies(out []*felix.ToDataplane) []*felix.ToDataplane {
	rules, noRules := g.policies.flush()
	sets, noSets := g.sets.flush()
	endpoints, noEndpoints := g.endpoints.flush()
	for _, list := range [][]*felix.ToDataplane{sets, rules, endpoints, noEndpoints, noRules, noSets} {
		out = append(out, list...)
	}
	return out
}

// Origin returns the policy that was sent under a name, as of the latest SetPolicy, for whoever asks which object decided.
// It is a copy: lists that are empty are nil. The rules in the message say in their RuleId which of its rules they are.
func (g *Graph) Origin(tier, name string) (*model.Policy, bool) {
	p := g.policies.onWire[policyKey{tier, name}]
	if p == nil || p.selector == nil {
		return nil, false
	}
	object := p.object
	var all []model.Rule
	object.InboundRules, object.OutboundRules = p.rules.unpack(&all)
	return &object, true
}

// Notes say, for each active policy and profile, what of it could not be understood, in a stable order.
func (g *Graph) Notes() []model.Note {
	var out []model.Note
	for _, list := range g.policies.notes {
		out = append(out, list...)
	}
	slices.SortStableFunc(out, func(a, b model.Note) int { return a.Ref.Compare(b.Ref) })
	return out
}
