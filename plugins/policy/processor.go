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
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Config is what a processor needs to know beside the cluster's objects.
type Config struct {
	NodeName string // this node: its pods are those policies are enforced for

	View4, View6 dataplane.View // what the driver's input hooks see of IPv4 and IPv6

	// TrustNodeAddresses lets in what comes from the node's own addresses although NAT gives them to others: with nat44 a pod can get
	// one by a session that a dropped packet left, and then reaches every pod of the node, whatever policies say.
	TrustNodeAddresses bool

	Limits budget.Limits // what policies may ask for; zero: there are no limits
}

// Processor holds the objects and tells the driver what follows from them. It is not safe for concurrent use.
type Processor struct {
	cfg    Config
	driver dataplane.Driver
	graph  *calc.Graph
	told   *told

	pods         map[model.PodID]*model.Pod // those with an endpoint
	local        map[model.PodID]*model.Pod // those of them on this node
	unborn       map[model.PodID]struct{}   // those of local that have no address yet
	askAgain     bool                       // unborn changed since Locate
	items        map[model.Ref]model.Object // policies, profiles, network sets, host endpoints
	parents      map[string]*parent         // namespaces and service accounts, by profile
	where        map[netip.Addr]string      // address of a local pod → interface, as VPP answered
	names        map[string]string          // "namespace/name" of an unborn pod → interface, as VPP answered
	ranges       map[string][]netip.Prefix  // of pods, by node
	strays       map[model.PodID]struct{}   // pods of other nodes in ranges of this one
	peers        map[string][]netip.Addr    // addresses of other nodes
	version      string                     // of VPP; "" unknown
	translations *Translations
	services     renderer.ServiceRendererAPI // what feeds translations
	stream       *stream                     // what messages of others say; nil: the graph says it
	gate         *gate

	node      dataplane.Node // as the driver knows it
	nodeDirty bool
	synced    bool // the driver was told everything once
	again     bool // the driver wants another Apply
}

// New returns a processor without objects. Nothing is told to the driver before the first Resync or Flush.
func New(cfg Config, driver dataplane.Driver) *Processor {
	p := &Processor{
		cfg: cfg, driver: driver, graph: calc.New(calc.Config{Node: cfg.NodeName}), told: newTold(),
		pods: map[model.PodID]*model.Pod{}, items: map[model.Ref]model.Object{},
		local: map[model.PodID]*model.Pod{}, unborn: map[model.PodID]struct{}{},
		parents: map[string]*parent{}, ranges: map[string][]netip.Prefix{}, strays: map[model.PodID]struct{}{}, peers: map[string][]netip.Addr{}, translations: newTranslations(), nodeDirty: true,
	}
	p.gate, p.services = newGate(cfg.Limits, p.graph), adapter.Listen(p.translations)
	for _, t := range model.BuiltinTiers() {
		p.graph.SetTier(t.Name, t)
	}
	p.graph.SetProfile(profileAllow, allowing())
	return p
}

// Translations returns the renderer through which this processor learns of Services and of the node. Give it to the service processor,
// and flush that processor first.
func (p *Processor) Translations() renderer.ServiceRendererAPI { return p.services }

// Located takes where VPP has the local pods. It replaces what was known before.
func (p *Processor) Located(l *event.Located) {
	p.nodeDirty = true
	if p.stream != nil {
		p.stream.located = l
		return
	}
	p.where, p.names = l.Pods, l.Names
}

// Locate is what to look up in VPP for policies, whenever it changed: the interfaces of local pods that have no address yet. VPP
// has an interface before Kubernetes knows the address, and the pod may speak at once. Pods with addresses are looked up for
// services already.
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

// VPP takes which VPP it is.
func (p *Processor) VPP(st *event.VPPStatus) {
	if st.Version != "" && st.Version != p.version {
		p.version, p.nodeDirty = st.Version, true
		p.gate.setVPP(st.Version)
	}
}

// Again implements controller.Stepwise.
func (p *Processor) Again() bool { return p.again }

// Behind implements controller.Overtaker.
func (p *Processor) Behind(behind bool) {
	if d, ok := p.driver.(interface{ Behind(bool) }); ok {
		d.Behind(behind)
	}
}

// Flush tells the driver what changed. It does nothing that can fail.
func (p *Processor) Flush() error {
	if !p.synced {
		return p.Resync()
	}
	if p.tell() || p.again {
		p.again = p.driver.Apply()
	}
	return nil
}

// Resync tells the driver everything. The first time there is no state on the way: what is in VPP then is another's, or
// from before, and all of it is replaced in one transaction.
func (p *Processor) Resync() error {
	first := !p.synced
	if first {
		p.synced = true
		p.graph.InSync() // of a stream, it says so itself
	}
	p.tell()
	for range maxInterim {
		if p.again = p.driver.Apply(); !p.again {
			break
		}
	}
	if !first { // the driver handed over everything just now
		p.driver.Resync()
	}
	return nil
}

// maxInterim bounds how many states on the way a first sync skips.
const maxInterim = 8

// tell gives the driver messages and facts, if there are new ones.
func (p *Processor) tell() bool {
	messages, hosts := p.news(), len(p.told.hosts) > 0
	for _, m := range messages {
		p.told.take(m)
		p.driver.OnUpdate(m)
	}
	p.nodeDirty = p.nodeDirty || hosts != (len(p.told.hosts) > 0)
	return p.tellNode() || len(messages) > 0
}

// tellNode gives the driver what it has to know about the node, if that changed.
func (p *Processor) tellNode() bool {
	if !p.nodeDirty && !p.translations.changed && len(p.names) == 0 {
		return false
	}
	p.nodeDirty, p.translations.changed = false, false
	now := dataplane.Node{View4: p.cfg.View4, View6: p.cfg.View6, Interfaces: p.interfaces(), Isolated: p.isolated(), ByteMatch6: matchesBytes(p.version)}
	p.translations.fill(&now)
	now.Served = p.served(now.Interfaces)
	now.Own = p.ownRanges(now.Interfaces)
	if len(p.told.hosts) > 0 { // nobody else asks
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

// podRanges are those of this node's pods, and of other nodes', each sorted.
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

// interfaces are those of the local pods there are, as far as VPP has them. An address of a pod that is gone says nothing
// any more. A pod that got its address is where it was when it had none, until VPP says more.
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

// isolated are the interfaces of pods without an address that policies apply to: which of the packets through them the
// policies allow, nobody can tell before there is an address.
func (p *Processor) isolated() []string {
	var out []string
	for id := range p.unborn {
		if name := p.names[id.String()]; name != "" && len(p.told.workloads[id.String()].GetTiers()) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Notes is what there is to say about policies and profiles in use, sorted by object, and then about annotations of local pods. What the driver has to say it
// tells its sink.
func (p *Processor) Notes() []model.Note {
	return slices.Concat(p.graph.Notes(), p.gate.notes(), p.hostNotes(), p.sourceNotes())
}

// Counts is how much there is.
type Counts struct {
	Policies  int // policies in force on this node
	Endpoints int // local pods and host endpoints
}

// Counts counts what the driver was told.
func (p *Processor) Counts() Counts {
	return Counts{Policies: len(p.told.policies), Endpoints: len(p.told.workloads) + len(p.told.hosts)}
}
