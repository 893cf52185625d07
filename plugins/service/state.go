package service

import (
	"net/netip"
	"time"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// Config configures a processor.
type Config struct {
	NodeName     string         // name of this node; "": no endpoint is local
	ProxyName    string         // label service.kubernetes.io/service-proxy-name of the Services to serve; "": those without it
	Loopback     netip.Addr     // NAT loopback; zero: a free address of the node's pod CIDR
	ServiceCIDRs []netip.Prefix // in addition to the ServiceCIDR objects
	Override     event.Located  // names of known interfaces that need no lookup; "" ones are looked up

	// NoExternalIPs ignores spec.externalIPs. With them, a user who may write a Service may take any address outside the cluster
	// (CVE-2020-8554).
	NoExternalIPs bool
	// ExternalIPCIDRs are the ranges that spec.externalIPs may be in; none: everywhere except in the ranges of pods and cluster IPs.
	// Addresses of nodes, of the API server, of pods, and cluster IPs are refused in both cases.
	ExternalIPCIDRs []netip.Prefix
	APIServers      []netip.Addr // addresses of the API server, in addition to the endpoints of Service default/kubernetes

	NodePorts NodePortAddresses // addresses of all nodes on which node ports are served; zero: all
	Refusal   renderer.Refusal  // who refuses packets to addresses of Services; zero: VPP

	// KeepTerminating uses terminating endpoints that still serve beside ready ones; Kubernetes uses them only where none is ready.
	// New connections then reach them, too, and nat44, which cannot drain, does not cut their existing connections.
	KeepTerminating bool

	Limits budget.Limits // limits of what Services may ask for; zero: no limits
}

// Processor holds the objects and calls the renderers with the results. It is not safe for concurrent use.
type Processor struct {
	cfg     Config
	targets []*target
	now     time.Time

	services map[model.ServiceID]*service
	slices   map[model.SliceID]*part
	users    users
	nodes    map[string]*model.Node
	ranges   map[string]*model.ServiceCIDR
	claims   *claims
	owners   owners
	shares   shares
	pods
	interfaces

	dirty       []*service // marked ones
	nodesDirty  bool
	stateDirty  bool
	nodePorts   map[*service]struct{}     // built ones with a node port
	all         []*renderer.ContivService // built ones, sorted by ID
	self        model.Node                // this node; zero: unknown
	remoteNodes []renderer.RemoteNode     // the other nodes, sorted by name
	noPorts     []netip.Addr              // node addresses without node ports, sorted
	version     int                       // counts changes of the state and the interface sets
	state       renderer.NodeState
	frontends   renderer.Interfaces
	backends    renderer.Interfaces
	nodeNotes   []model.Note
}

// service is the state of one Service.
type service struct {
	id       model.ServiceID
	spec     *model.Service         // nil: only its slices exist
	parts    []*model.EndpointSlice // sorted by name
	renamed  bool                   // spec changed, so the claims may change
	marked   bool                   // it is in the processor's dirty list
	claimed  []ask                  // sorted
	asking   *model.Service         // the spec behind the claims; nil: no claims
	built    *renderer.ContivService
	notes    []model.Note
	accepted []*renderer.ContivService // by target: the last form that its renderer accepted
	errs     []error                   // by target: why it did not accept built

	// Room for the lists above in the common case: one slice, one frontend, one renderer.
	onePart     [1]*model.EndpointSlice
	oneClaim    [1]ask
	oneAccepted [1]*renderer.ContivService
	oneErr      [1]error
}

func compareServices(a, b *service) int { return a.id.Compare(b.id) }

// ask is one frontend that a service asks for.
type ask struct {
	renderer.Frontend
	// outer: by an external IP, a load-balancer IP or a node port, and not by a cluster IP.
	outer bool
}

// apiService is the Service whose endpoints are the API server.
var apiService = model.ServiceID{Namespace: "default", Name: "kubernetes"}

// shares are the sizes that Services ask for, and which Services ask for too much. A Service may lose its endpoints, and then all of
// its addresses reject. Or it may lose only its restricted load-balancer IPs. So each of these is a claim.
type shares struct{ backends, ranges *budget.Ledger }

// pods holds the Pods that have addresses outside of the host network.
type pods struct {
	node    string
	ips     map[model.PodID][]netip.Addr
	at      map[netip.Addr][]model.PodID
	local   map[model.PodID]struct{} // pods of this node
	changed bool                     // local pods, or other lookups of Locate, changed since the last one
}

func (p *Processor) mark(s *service) {
	if !s.marked {
		s.marked = true
		p.dirty = append(p.dirty, s)
	}
}

func (p *Processor) serviceOf(id model.ServiceID) *service {
	s := p.services[id]
	if s == nil {
		s = &service{id: id}
		s.parts, s.accepted, s.errs = s.onePart[:0], s.oneAccepted[:0], s.oneErr[:0]
		for range p.targets {
			s.accepted, s.errs = append(s.accepted, nil), append(s.errs, nil)
		}
		p.services[id] = s
	}
	return s
}

// forgetServices drops services that have no objects any more, here and at the renderers.
func (p *Processor) forgetServices(list []*service) {
	for _, s := range list {
		gone := s.spec == nil && len(s.parts) == 0 && p.services[s.id] == s
		for _, form := range s.accepted {
			gone = gone && form == nil
		}
		if gone {
			delete(p.services, s.id)
		}
	}
}
