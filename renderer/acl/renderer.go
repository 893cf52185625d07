package acl

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/acl/failsafe"
	"github.com/contiv-agent/contiv-agent/renderer/acl/group"
	"github.com/contiv-agent/contiv-agent/renderer/acl/index"
	"github.com/contiv-agent/contiv-agent/renderer/acl/interim"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Config configures how lists are made.
type Config struct {
	// MaxACLs is the most ACLs of an interface, both directions together. Zero is 255, VPP's maximum (24.06,
	// acl_interface_set_acl_list counts in a byte); a smaller number keeps room for foreign ACLs. At least 20.
	MaxACLs int
	// SourceCheck states from which addresses pods may send; zero: only the pod's.
	SourceCheck SourceCheck
	// Evaluated sends an InterfaceACLs without lists for each interface of a pod that needs none: vppagent denies what passes
	// an interface that has no value (vppagent.Config.DenyUnknown).
	Evaluated bool
}

// Validate reports whether the settings make sense.
func (c *Config) Validate() error {
	if c.MaxACLs != 0 && (c.MaxACLs < 20 || c.MaxACLs > 255) {
		return fmt.Errorf("MaxACLs: %d is not within 20 to 255", c.MaxACLs)
	}
	return nil
}

func (c *Config) maxACLs() int {
	if c.MaxACLs == 0 {
		return 255
	}
	return c.MaxACLs
}

// Renderer is the driver. Its calls never fail: an object that cannot be rendered gets a note, and is denied. One goroutine owns it.
type Renderer struct {
	cfg    Config
	sink   renderer.Sink
	node   node.Node
	inSync bool
	news   bool // a message arrived since the last check of it

	// The received state.
	sets      match.Sets
	book      *policy.Book
	workloads map[workloadID]*workload
	hosts     map[string]*felix.HostEndpointUpdate

	// The state made from it.
	ifaces   map[string]*iface
	programs map[string]*program
	store    *table.Store
	segs     *table.Segments
	outbound map[*program]*outbound
	near     map[*program]*vicinity
	pods     []netip.Addr // local ones, sorted, while near is made
	reused
	refuser *refuser
	groups  *group.Groups[*program, *residue]
	packs   *lists.Packs
	remote  map[string]lists.Lists // lists of interfaces that are not a pod's
	outside *lists.Check           // sources that no host outside has, at these interfaces; nil: not checked
	hooks   map[string]*hostHook   // hooks of host endpoints, by interface
	exits   map[string]*exit       // exits of host endpoints that deny forwarded packets, by interface
	exposed map[netip.Addr][]node.Exposure
	behind  map[netip.Addr]struct{} // backends of outer addresses

	bytes       bool                    // programs are unfolded for a VPP that compares whole bytes
	hostSegs    []*table.Segment        // of hooks
	hostMatches map[string]*match.Match // by kind of packets
	failsafe    [2][]failsafe.Port      // in, out
	spoofing    bool                    // Felix's settings let pods send from the prefixes their endpoints allow

	// Indices from an object to its users, for changes.
	ofPolicy  index.Of[policy.ID, *program]
	ofProfile index.Of[string, *program]
	ofSegment index.Of[*table.Segment, *program]

	dirty dirt
	out   *interim.Output
	notes *note.Book
}

// dirt is what changed since the last Apply.
type dirt struct {
	node     bool              // addresses, interfaces, views
	places   bool              // locations of endpoints
	outer    bool              // outer addresses, or their dependencies
	sets     map[string]uint64 // buckets
	hosts    map[string]struct{}
	programs map[*program]struct{}
	ifaces   map[*iface]struct{}
	left     []*program // programs that an interface stopped using

	outbound map[*program]struct{}     // steps or sources
	targets  map[*iface]struct{}       // addresses
	regroup  map[*iface]struct{}       // residues
	members  map[string][]netip.Prefix // of sets: joined or left
	remote   bool                      // evaluation where packets leave for destinations other than local pods
	host     bool                      // rules of host endpoints
}

func newDirt() dirt {
	return dirt{
		sets: map[string]uint64{}, hosts: map[string]struct{}{},
		programs: map[*program]struct{}{}, ifaces: map[*iface]struct{}{},
		outbound: map[*program]struct{}{}, targets: map[*iface]struct{}{}, regroup: map[*iface]struct{}{}, members: map[string][]netip.Prefix{},
	}
}

// New returns a renderer that has sent its sink nothing yet; cfg must be valid.
func New(cfg Config, sink renderer.Sink) *Renderer {
	r := &Renderer{
		cfg: cfg, sink: sink,
		sets: match.Sets{}, book: policy.NewBook(),
		workloads: map[workloadID]*workload{}, hosts: map[string]*felix.HostEndpointUpdate{},
		ifaces: map[string]*iface{}, programs: map[string]*program{},
		outbound: map[*program]*outbound{}, near: map[*program]*vicinity{},
		exposed: map[netip.Addr][]node.Exposure{}, behind: map[netip.Addr]struct{}{},

		ofPolicy: index.Of[policy.ID, *program]{}, ofProfile: index.Of[string, *program]{},
		ofSegment: index.Of[*table.Segment, *program]{},

		hooks: map[string]*hostHook{}, hostMatches: map[string]*match.Match{}, failsafe: failsafe.Ports(nil),
		dirty: newDirt(), notes: note.NewBook(), store: table.NewStore(),
	}
	r.segs = table.NewSegments(r.store, r.sets, r.notes, table.MaxRules)
	r.packs = lists.NewPacks(r.store, r.segs, cfg.maxACLs())
	r.out = interim.NewOutput(sink, r.store, facts{r}, cfg.maxACLs(), cfg.Evaluated)
	r.groups = group.New(table.GroupPrefix, r.store, r.residueTable)
	r.refuser = newRefuser(r)
	return r
}

// OnUpdate takes one message. The renderer keeps it: do not change it afterwards.
func (r *Renderer) OnUpdate(m *felix.ToDataplane) {
	r.news = true
	switch m := m.GetPayload().(type) {
	case *felix.ToDataplane_ConfigUpdate:
		r.failsafe, r.dirty.host = failsafe.Ports(m.ConfigUpdate.GetConfig()), true
		r.setSpoofing(m.ConfigUpdate.GetConfig()[configSpoofing] == spoofingAllowed)
	case *felix.ToDataplane_InSync:
		r.inSync = true
	case *felix.ToDataplane_IpsetUpdate:
		r.sets[m.IpsetUpdate.GetId()] = match.NewSet(m.IpsetUpdate)
		r.setReplaced(m.IpsetUpdate.GetId())
	case *felix.ToDataplane_IpsetDeltaUpdate:
		r.setChanged(m.IpsetDeltaUpdate)
	case *felix.ToDataplane_IpsetRemove:
		delete(r.sets, m.IpsetRemove.GetId())
		r.setReplaced(m.IpsetRemove.GetId())
	case *felix.ToDataplane_ActivePolicyUpdate, *felix.ToDataplane_ActivePolicyRemove,
		*felix.ToDataplane_ActiveProfileUpdate, *felix.ToDataplane_ActiveProfileRemove:
		r.dirty.places = r.book.OnUpdate(m) || r.dirty.places
	case *felix.ToDataplane_WorkloadEndpointUpdate:
		id := workloadIDOf(m.WorkloadEndpointUpdate.GetId())
		r.workloads[id] = newWorkload(id, m.WorkloadEndpointUpdate.GetEndpoint())
		r.dirty.places = true
	case *felix.ToDataplane_WorkloadEndpointRemove:
		id := workloadIDOf(m.WorkloadEndpointRemove.GetId())
		delete(r.workloads, id)
		r.dirty.places = true
	case *felix.ToDataplane_HostEndpointUpdate:
		r.hosts[m.HostEndpointUpdate.GetId().GetEndpointId()] = m.HostEndpointUpdate
		r.dirty.host = true
		r.dirty.hosts[m.HostEndpointUpdate.GetId().GetEndpointId()] = struct{}{}
	case *felix.ToDataplane_HostEndpointRemove:
		delete(r.hosts, m.HostEndpointRemove.GetId().GetEndpointId())
		r.dirty.host = true
		r.dirty.hosts[m.HostEndpointRemove.GetId().GetEndpointId()] = struct{}{}
	}
}

// setReplaced marks the users of a set that is new, removed or sent again.
func (r *Renderer) setReplaced(id string) {
	r.segs.SetReplaced(id)
	for p := range r.outbound {
		if p.steps.NamesSet(id) {
			r.dirty.outbound[p] = struct{}{}
		}
	}
	r.refuser.setReplaced(id)
}

func (r *Renderer) setChanged(m *felix.IPSetDeltaUpdate) {
	changed, replaced := r.sets.Change(m)
	if replaced {
		r.setReplaced(m.GetId())
		return
	}
	r.segs.SetChanged(m.GetId(), changed)
	if len(r.outbound) > 0 {
		r.membersChanged(m)
	}
}

// SetNode takes the complete state of the node.
func (r *Renderer) SetNode(n dataplane.Node) {
	if !dataplane.SameOuter(r.node.Outer, n.Outer) {
		r.dirty.outer, r.dirty.host, r.dirty.remote, r.news = true, true, true, true
		r.out.Resent()
	}
	if !slices.Equal(r.node.Served, n.Served) {
		r.dirty.places, r.news = true, true
	}
	if r.node.EqualButPorts(&n) {
		r.node.Outer, r.node.Served = n.Outer, n.Served
		return
	}
	if r.node.ByteMatch6 != n.ByteMatch6 || !slices.Equal(r.node.Peers, n.Peers) || !slices.Equal(r.node.Addrs, n.Addrs) {
		r.segs.RewriteAll()
	}
	if !slices.Equal(r.node.Frontends, n.Frontends) {
		r.out.Resent()
	}
	r.node.Node, r.news = n, true
	r.dirty.node, r.dirty.places, r.dirty.host = true, true, true
}

// Behind takes whether VPP may lack a part of the changes sent so far. While it is true, an opening waits if it concerns a packet that one
// of these changes closes at another interface. Acknowledged: VPP has all changes that were sent before Behind was last called with it.
func (r *Renderer) Behind(behind, acknowledged bool) {
	r.out.Behind(behind, acknowledged)
}

// Apply sends the changes since the last Apply to the sink. If some would open one interface while they, or earlier changes that VPP may
// lack (Behind), close another, so that a packet could pass in between which no state lets pass, Apply sends only the closings and what
// does not conflict, and again is true: call Apply once more when VPP has that.
func (r *Renderer) Apply() (again bool) {
	if !r.inSync {
		return false
	}
	if r.out.Proceed() {
		r.flush()
		return r.news || r.out.More()
	}
	r.news = false
	r.settle()
	again = r.out.Emit()
	r.flush()
	return again
}

// settle updates programs, segments, tables and lists.
func (r *Renderer) settle() {
	r.locate()
	r.findExits()
	r.refresh()
	r.evaluateOutputs()
	r.evaluateHosts()
	r.compile()
	for _, i := range sortedIfaces(r.dirty.ifaces) {
		r.list(i)
	}
	clear(r.dirty.ifaces)
	r.listRemote()
	if r.packs.Repack(r.out.Uses) {
		for _, name := range slices.Sorted(maps.Keys(r.ifaces)) {
			r.list(r.ifaces[name])
		}
		r.dirty.remote = true
		r.listRemote()
		r.packs.Repack(r.out.Uses)
	}
}

// refresh flattens again the programs whose policies changed.
func (r *Renderer) refresh() {
	mark := func(programs map[*program]struct{}) {
		for p := range programs {
			r.dirty.programs[p] = struct{}{}
		}
	}
	r.book.EachChanged(func(id policy.ID, _ []string) { mark(r.ofPolicy[id]) }, func(name string, _ []string) { mark(r.ofProfile[name]) })
	for p := range r.dirty.programs {
		if len(p.users) > 0 {
			r.reflatten(p)
		}
	}
	r.forget()
	r.noteRules()
	r.dirty.host = r.dirty.host || len(r.hosts) > 0 && r.book.Changed()
	r.book.Settled()
	clear(r.dirty.programs)
}

// reflatten makes a program's steps anew.
func (r *Renderer) reflatten(p *program) {
	steps := r.flatten(&p.spec)
	p.free = steps.Opens()
	if p.spec.Egress && !p.spec.Down {
		steps = r.behindExits(steps)
	}
	if p.steps != nil && slices.EqualFunc(steps, p.steps, policy.Step.Identical) {
		return
	}
	p.steps = steps
	p.open = p.steps.Opens()
	r.dirty.outbound[p] = struct{}{}
	old := p.uses
	p.uses = make([]table.Use, 0, len(p.steps))
	for i := range p.steps {
		s := &p.steps[i]
		c := &s.Clauses[len(s.Clauses)-1]
		switch {
		case p.open && i < len(p.steps)-1: // all later steps allow everything
		case p.open || s.Lone():
			p.uses = append(p.uses, table.Use{Seg: nil, Verb: c.Verb, Cause: c.Cause})
		default:
			p.uses = append(p.uses, table.Use{Seg: r.acquire(p, s), Verb: c.Verb, Cause: nil})
		}
	}
	for _, u := range old {
		r.release(p, u.Seg)
	}
	if !slices.Equal(old, p.uses) {
		for i := range p.users {
			r.dirty.ifaces[i] = struct{}{}
		}
	}
}

// acquire returns the segment of a step, and counts one more use by a program.
func (r *Renderer) acquire(p *program, s *policy.Step) *table.Segment {
	seg := r.segs.Take(s.Role, table.Scope{Egress: p.spec.Egress}, s.Clauses)
	r.ofSegment.Add(seg, p)
	return seg
}

// release removes one use of a segment; nil: none.
func (r *Renderer) release(p *program, seg *table.Segment) {
	if seg == nil {
		return
	}
	if !slices.ContainsFunc(p.uses, func(u table.Use) bool { return u.Seg == seg }) {
		r.ofSegment.Remove(seg, p)
	}
	r.segs.Drop(seg)
}

// compile compiles the segments whose clauses or sets changed.
func (r *Renderer) compile() {
	begin := func(seg *table.Segment, note func(*match.Clause, string, ...any)) []netip.Prefix {
		noteFronts(r, seg, note)
		return r.peersOf(seg)
	}
	r.segs.Compile(r.node.ByteMatch6, begin, func(seg *table.Segment, relisted bool) {
		r.refilter(seg)
		if !relisted {
			return
		}
		r.dirty.remote = r.dirty.remote || seg.Host || (seg.Scope.Egress || len(r.refuser.of) > 0) && len(r.outbound) > 0
		for p := range r.ofSegment[seg] {
			for i := range p.users {
				r.dirty.ifaces[i] = struct{}{}
			}
		}
	})
}

// Resync sends everything to the sink again.
func (r *Renderer) Resync() {
	r.out.Resync()
	r.notes.Resend()
	r.flush()
}

// facts are what the output asks about interfaces.
type facts struct{ r *Renderer }

// Addrs returns the addresses of a local pod's interface; false: it is no pod's.
func (f facts) Addrs(iface string) ([]netip.Addr, bool) {
	if i := f.r.ifaces[iface]; i != nil {
		return i.addrs, true
	}
	return nil, false
}

// Isolated returns the lists of an interface that nothing may pass.
func (f facts) Isolated() lists.Lists { return f.r.isolated() }

// Node returns the node.
func (f facts) Node() *dataplane.Node { return &f.r.node.Node }
