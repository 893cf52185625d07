package policy

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/renderer/adapter"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy/limit"
	"github.com/contiv-agent/contiv-agent/plugins/policy/services"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Config configures a processor.
type Config struct {
	NodeName string // name of this node; policies are enforced for its pods

	View4, View6 dataplane.View // whether the driver's input hooks see a packet before or after translation, for IPv4 and IPv6

	// TrustNodeAddresses admits packets from the node's addresses although NAT uses them for other sources. With nat44 a pod can get
	// such an address through a session that a dropped packet left behind. It then reaches every pod of the node, whatever the
	// policies say.
	TrustNodeAddresses bool

	Limits budget.Limits // limits of what policies may ask for; zero: no limits
}

// Processor holds the objects and sends the resulting messages to the driver. It is not safe for concurrent use.
type Processor struct {
	cfg    Config
	driver dataplane.Driver
	graph  *calc.Graph
	sent   *sent

	pods         map[model.PodID]*model.Pod // those with an endpoint
	local        map[model.PodID]*model.Pod // those of them on this node
	unborn       map[model.PodID]struct{}   // the pods of local that have no address yet
	askAgain     bool                       // unborn changed since Locate
	items        map[model.Ref]model.Object // policies, profiles, network sets, host endpoints
	parents      map[string]*parent         // namespaces and service accounts, by profile
	where        map[netip.Addr]string      // address of a local pod → interface, from VPP's last answer
	names        map[string]string          // "namespace/name" of an unborn pod → interface, from VPP's last answer
	ranges       map[string][]netip.Prefix  // pod ranges by node
	strays       map[model.PodID]struct{}   // pods of other nodes in ranges of this one
	peers        map[string][]netip.Addr    // addresses of other nodes
	version      string                     // of VPP; "" unknown
	translations *services.Translations
	services     renderer.ServiceRendererAPI // input of translations
	stream       *stream                     // state from an external graph's messages; nil: the processor uses its graph
	gate         *limit.Gate

	node      dataplane.Node // as last sent to the driver
	nodeDirty bool
	synced    bool // the driver received the first full state
	again     bool // the driver requested another Apply
}

// New returns a processor without objects. The driver receives nothing before the first Resync or Flush.
func New(cfg Config, driver dataplane.Driver) *Processor {
	p := &Processor{
		cfg: cfg, driver: driver, graph: calc.New(calc.Config{Node: cfg.NodeName}), sent: newSent(),
		pods: map[model.PodID]*model.Pod{}, items: map[model.Ref]model.Object{},
		local: map[model.PodID]*model.Pod{}, unborn: map[model.PodID]struct{}{},
		parents: map[string]*parent{}, ranges: map[string][]netip.Prefix{}, strays: map[model.PodID]struct{}{}, peers: map[string][]netip.Addr{}, translations: services.New(), nodeDirty: true,
	}
	p.gate, p.services = limit.New(cfg.Limits, p.graph), adapter.Listen(p.translations)
	for _, t := range model.BuiltinTiers() {
		p.graph.SetTier(t.Name, t)
	}
	p.graph.SetProfile(profileAllow, allowing())
	return p
}

// NewStream returns a processor that calculates nothing. It passes the messages of an external calculation graph, received as
// *event.Dataplane, to the driver. It learns about the node from these messages and from VPP, and ignores Kubernetes objects.
// Override names interfaces that need no lookup.
func NewStream(cfg Config, override event.Located, driver dataplane.Driver) *Processor {
	p := New(cfg, driver)
	p.stream = &stream{
		p: p, override: override, endpoints: map[endpointID]*streamed{}, nodes: map[string][]netip.Addr{}, own: map[netip.Prefix]struct{}{},
		local: map[netip.Prefix]struct{}{}, remote: map[netip.Prefix]struct{}{}, services: map[model.ServiceID][]netip.Prefix{}, dirty: true,
	}
	return p
}

// Translations returns the renderer from which this processor learns of Services and of the node. Pass it to the service processor,
// and flush that processor first.
func (p *Processor) Translations() renderer.ServiceRendererAPI { return p.services }

// Located receives the locations of local pods in VPP. It replaces the earlier locations.
func (p *Processor) Located(l *event.Located) {
	p.nodeDirty = true
	if p.stream != nil {
		p.stream.located = l
		return
	}
	p.where, p.names = l.Pods, l.Names
}

// Locate returns the lookups in VPP that policies need, if they changed: the interfaces of local pods that have no address yet. VPP
// has an interface before Kubernetes knows the pod's address, and the pod may send at once. The service processor already looks up
// pods with addresses.
func (p *Processor) Locate(now time.Time) *event.Locate {
	if p.stream != nil {
		return p.stream.locate(now)
	}
	if !p.askAgain {
		return nil
	}
	p.askAgain = false
	ask := &event.Locate{}
	for id := range p.unborn {
		ask.Names = append(ask.Names, id.String())
	}
	slices.Sort(ask.Names)
	return ask
}

// VPP receives the version of VPP.
func (p *Processor) VPP(st *event.VPPStatus) {
	if st.Version != "" && st.Version != p.version {
		p.version, p.nodeDirty = st.Version, true
		p.gate.SetVPP(st.Version)
	}
}

// Again implements controller.Stepwise.
func (p *Processor) Again() bool { return p.again }

// Behind implements controller.Overtaker.
func (p *Processor) Behind(now dataplane.Progress) (between bool) {
	d, ok := p.driver.(interface {
		Behind(dataplane.Progress) bool
	})
	return ok && d.Behind(now)
}

// Flush sends the changes to the driver. It cannot fail.
func (p *Processor) Flush() error {
	if !p.synced {
		return p.Resync()
	}
	if p.sendAll() || p.again {
		p.again = p.driver.Apply()
	}
	return nil
}

// Resync sends the full state to the driver. The first resync has no interim state: it replaces the whole of VPP's earlier state,
// ours or foreign, in one transaction.
func (p *Processor) Resync() error {
	first := !p.synced
	if first {
		p.synced = true
		p.graph.InSync() // an external graph's messages report it
	}
	p.sendAll()
	for range maxInterim {
		if p.again = p.driver.Apply(); !p.again {
			break
		}
	}
	if !first { // the driver handed over its whole state just now
		p.driver.Resync()
	}
	return nil
}

// maxInterim bounds how many interim states a first sync skips.
const maxInterim = 8

// sendAll sends the driver new messages and facts, if any.
func (p *Processor) sendAll() bool {
	messages, hosts := p.news(), len(p.sent.hosts) > 0
	for _, m := range messages {
		p.sent.record(m)
		p.driver.OnUpdate(m)
	}
	p.nodeDirty = p.nodeDirty || hosts != (len(p.sent.hosts) > 0)
	return p.sendNode() || len(messages) > 0
}

// sendNode sends the driver the facts about the node, if they changed.
func (p *Processor) sendNode() bool {
	if !p.nodeDirty && !p.translations.Changed() && len(p.names) == 0 {
		return false
	}
	p.nodeDirty = false
	now := dataplane.Node{View4: p.cfg.View4, View6: p.cfg.View6, Interfaces: p.interfaces(), Isolated: p.isolated(), ByteMatch6: limit.MatchesBytes(p.version)}
	p.translations.Fill(&now)
	now.Served = p.served(now.Interfaces)
	now.Own = p.ownRanges(now.Interfaces)
	if len(p.sent.hosts) > 0 { // only host endpoints use it
		now.Near, now.Far = p.podRanges()
	}
	if p.stream != nil {
		p.stream.fill(&now)
		p.stream.frontends(&now)
	}
	if !p.cfg.TrustNodeAddresses {
		now.Peers = p.peerAddrs()
	} else {
		now.HostAddrs = sorted(slices.Concat(now.HostAddrs, now.Addrs))
	}
	if now.Equal(&p.node) {
		return false
	}
	p.node = now
	p.driver.SetNode(now)
	return true
}

// podRanges returns the ranges of this node's pods, and those of other nodes' pods, each sorted.
func (p *Processor) podRanges() (near, far []netip.Prefix) {
	for node, list := range p.ranges {
		if node == p.cfg.NodeName {
			near = append(near, list...)
		} else {
			far = append(far, list...)
		}
	}
	if p.stream != nil {
		far = slices.Collect(maps.Keys(p.stream.remote))
	}
	slices.SortFunc(near, netip.Prefix.Compare)
	slices.SortFunc(far, netip.Prefix.Compare)
	return near, far
}

// interfaces returns the interfaces of the existing local pods, as far as VPP has them. It ignores addresses of removed pods. A pod
// that just got its address keeps its earlier interface until VPP answers again.
func (p *Processor) interfaces() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for id, pod := range p.local {
		for _, a := range pod.IPs {
			name := p.where[a]
			if name == "" && len(p.names) > 0 {
				name = p.names[id.String()]
			}
			if name != "" {
				out[a] = name
			}
		}
	}
	return out
}

// isolated returns the interfaces of pods that have policies and no address. Without the address no rule can be evaluated, so
// nothing passes these interfaces.
func (p *Processor) isolated() []string {
	var out []string
	for id := range p.unborn {
		if name := p.names[id.String()]; name != "" && len(p.sent.workloads[id.String()].GetTiers()) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// parent is a namespace or service account. While pods refer to one that has no object, only its name is known. In a folder of
// manifests the object may follow its pods, or never appear.
type parent struct {
	users   int
	object  model.Object // nil: none
	refused bool         // its object is invalid: its labels are unknown, so its profile allows nothing
}
