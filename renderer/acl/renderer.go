package acl

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/failsafe"
	"github.com/contiv-agent/contiv-agent/renderer/acl/index"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
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
	node   dataplane.Node
	most   int // rules of an ACL
	inSync bool
	news   bool // a message arrived since the last check of it
	resent bool // the translated addresses were sent again

	// The received state.
	sets      match.Sets
	book      *policy.Book
	workloads map[workloadID]*workload
	hosts     map[string]*felix.HostEndpointUpdate

	// The state made from it.
	ifaces   map[string]*iface
	programs map[string]*program
	segments map[string]*segment
	tables   map[string]*table // tables of segments
	fixed    map[string]*table // tables without a segment
	outbound map[*program]*outbound
	near     map[*program]*vicinity
	pods     []netip.Addr // local ones, sorted, while near is made
	reused
	refuser *refuser
	groups  map[string]*residueGroup
	packs   map[string]*pack
	remote  map[string]lists     // lists of interfaces that are not a pod's
	outside *sources             // sources that no host outside has, at these interfaces; nil: not checked
	hooks   map[string]*hostHook // hooks of host endpoints, by interface
	exits   map[string]*exit     // exits of host endpoints that deny forwarded packets, by interface
	exposed map[netip.Addr][]exposure
	behind  map[netip.Addr]struct{} // backends of outer addresses

	asked       bool                    // some rule has named ports of SCTP
	bytes       bool                    // programs are unfolded for a VPP that compares whole bytes
	hostSegs    []*segment              // of hooks
	hostMatches map[string]*match.Match // by kind of packets
	failsafe    [2][]failsafe.Port      // in, out
	spoofing    bool                    // Felix's settings let pods send from the prefixes their endpoints allow

	// Indices from an object to its users, for changes.
	ofPolicy  index.Of[policy.ID, *program]
	ofProfile index.Of[string, *program]
	ofSet     index.Of[string, *segment]
	ofSegment index.Of[*segment, *program]
	ofGroup   index.Of[*program, *residueGroup]
	ofTable   index.Of[string, *pack]

	dirty dirt
	out   output
	notes notebook
}

// dirt is what changed since the last Apply.
type dirt struct {
	node     bool              // addresses, interfaces, views
	places   bool              // locations of endpoints
	outer    bool              // outer addresses, or their dependencies
	sets     map[string]uint64 // buckets
	hosts    map[string]struct{}
	programs map[*program]struct{}
	segments map[*segment]uint64
	ifaces   map[*iface]struct{}
	tables   map[string]struct{}
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
		programs: map[*program]struct{}{}, segments: map[*segment]uint64{}, ifaces: map[*iface]struct{}{}, tables: map[string]struct{}{},
		outbound: map[*program]struct{}{}, targets: map[*iface]struct{}{}, regroup: map[*iface]struct{}{}, members: map[string][]netip.Prefix{},
	}
}

// New returns a renderer that has sent its sink nothing yet; cfg must be valid.
func New(cfg Config, sink renderer.Sink) *Renderer {
	r := &Renderer{
		cfg: cfg, sink: sink, most: maxRules,
		sets: match.Sets{}, book: policy.NewBook(),
		workloads: map[workloadID]*workload{}, hosts: map[string]*felix.HostEndpointUpdate{},
		ifaces: map[string]*iface{}, programs: map[string]*program{}, segments: map[string]*segment{},
		tables: map[string]*table{}, fixed: map[string]*table{}, outbound: map[*program]*outbound{}, near: map[*program]*vicinity{}, groups: map[string]*residueGroup{},
		exposed: map[netip.Addr][]exposure{}, behind: map[netip.Addr]struct{}{},
		packs: map[string]*pack{}, ofTable: index.Of[string, *pack]{},
		ofPolicy: index.Of[policy.ID, *program]{}, ofProfile: index.Of[string, *program]{},
		ofSet: index.Of[string, *segment]{}, ofSegment: index.Of[*segment, *program]{},
		ofGroup: index.Of[*program, *residueGroup]{},
		hooks:   map[string]*hostHook{}, hostMatches: map[string]*match.Match{}, failsafe: failsafe.Ports(nil),
		dirty: newDirt(), out: newOutput(), notes: newNotebook(),
	}
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
	for s := range r.ofSet[id] {
		s.rewrite()
		r.dirty.segments[s] = ^uint64(0)
	}
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
	for seg := range r.ofSet[m.GetId()] {
		r.dirty.segments[seg] |= changed
	}
	if len(r.outbound) > 0 {
		r.membersChanged(m)
	}
}

// SetNode takes the complete state of the node.
func (r *Renderer) SetNode(n dataplane.Node) {
	if !dataplane.SameOuter(r.node.Outer, n.Outer) {
		r.dirty.outer, r.dirty.host, r.dirty.remote, r.news, r.resent = true, true, true, true, true
	}
	if !slices.Equal(r.node.Served, n.Served) {
		r.dirty.places, r.news = true, true
	}
	if r.node.EqualButPorts(&n) {
		r.node.Outer, r.node.Served = n.Outer, n.Served
		return
	}
	if r.node.ByteMatch6 != n.ByteMatch6 || !slices.Equal(r.node.Peers, n.Peers) || !slices.Equal(r.node.Addrs, n.Addrs) {
		for _, s := range r.segments {
			s.rewrite()
			r.dirty.segments[s] = ^uint64(0)
		}
	}
	r.resent = r.resent || !slices.Equal(r.node.Frontends, n.Frontends)
	r.node, r.news = n, true
	r.dirty.node, r.dirty.places, r.dirty.host = true, true, true
}

// Behind takes whether VPP may lack a part of the changes sent so far. While it is true, an opening waits if it concerns a packet that one
// of these changes closes at another interface. Acknowledged: VPP has all changes that were sent before Behind was last called with it.
func (r *Renderer) Behind(behind, acknowledged bool) {
	if r.out.behind = behind; acknowledged {
		r.out.late.Age()
	}
}

// Apply sends the changes since the last Apply to the sink. If some would open one interface while they, or earlier changes that VPP may
// lack (Behind), close another, so that a packet could pass in between which no state lets pass, Apply sends only the closings and what
// does not conflict, and again is true: call Apply once more when VPP has that.
func (r *Renderer) Apply() (again bool) {
	if !r.inSync {
		return false
	}
	if !r.out.behind {
		r.out.late = conflict.Log{}
	}
	if r.proceed() {
		return r.news || r.out.more
	}
	r.news = false
	r.settle()
	return r.emit()
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
	if r.repack() {
		for _, name := range slices.Sorted(maps.Keys(r.ifaces)) {
			r.list(r.ifaces[name])
		}
		r.dirty.remote = true
		r.listRemote()
		r.repack()
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
	p.uses = make([]use, 0, len(p.steps))
	for i := range p.steps {
		s := &p.steps[i]
		c := &s.Clauses[len(s.Clauses)-1]
		switch {
		case p.open && i < len(p.steps)-1: // all later steps allow everything
		case p.open || s.Lone():
			p.uses = append(p.uses, use{nil, c.Verb, c.Cause})
		default:
			p.uses = append(p.uses, use{r.acquire(p, s), c.Verb, nil})
		}
	}
	for _, u := range old {
		r.release(p, u.seg)
	}
	if !slices.Equal(old, p.uses) {
		for i := range p.users {
			r.dirty.ifaces[i] = struct{}{}
		}
	}
}

// acquire returns the segment of a step, and counts one more use by a program.
func (r *Renderer) acquire(p *program, s *policy.Step) *segment {
	seg := r.segment(s.Role, scope{egress: p.spec.Egress}, s.Clauses)
	seg.users++
	r.ofSegment.Add(seg, p)
	return seg
}

// segment returns the segment of a role with these clauses.
func (r *Renderer) segment(role string, sc scope, clauses []match.Clause) *segment {
	seg := r.segments[role]
	if seg == nil {
		seg = &segment{role: role, name: nameOf(role), scope: sc}
		if strings.HasPrefix(role, invitedPrefix) {
			seg.name = invitedPrefix + seg.name
		}
		r.segments[role] = seg
	}
	if slices.EqualFunc(seg.clauses, clauses, match.Clause.Equal) && slices.Equal(seg.scope.srcs, sc.srcs) {
		return seg
	}
	r.unindex(seg)
	if seg.scope.egress != sc.egress || !slices.Equal(seg.scope.srcs, sc.srcs) {
		seg.rewrite()
	}
	seg.clauses, seg.scope, seg.fresh = clauses, sc, false
	seg.asks = slices.ContainsFunc(clauses, func(c match.Clause) bool { return c.AsksPorts() })
	r.asked = r.asked || seg.asks
	seg.eachSet(func(id string) { r.ofSet.Add(id, seg) })
	r.dirty.segments[seg] |= 0 // the segment computes the difference
	if seg.written == nil {
		r.dirty.segments[seg] = ^uint64(0)
	}
	return seg
}

func (r *Renderer) unindex(seg *segment) {
	seg.eachSet(func(id string) { r.ofSet.Remove(id, seg) })
}

// release removes one use of a segment; nil: none.
func (r *Renderer) release(p *program, seg *segment) {
	if seg == nil {
		return
	}
	if !slices.ContainsFunc(p.uses, func(u use) bool { return u.seg == seg }) {
		r.ofSegment.Remove(seg, p)
	}
	r.drop(seg)
}

// drop removes one use of a segment, and the segment with its last use.
func (r *Renderer) drop(seg *segment) {
	if seg.users--; seg.users > 0 {
		return
	}
	r.unindex(seg)
	delete(r.segments, seg.role)
	delete(r.dirty.segments, seg)
	for _, t := range seg.tables {
		r.dirty.tables[t.name] = struct{}{}
		delete(r.tables, t.name)
	}
	seg.tables = nil
	r.notes.forget(seg.role)
}

// compile compiles the segments whose clauses or sets changed.
func (r *Renderer) compile() {
	for _, seg := range sortedSegments(r.dirty.segments) {
		x := &compiler{match.Expander{Sets: r.sets, WholeBytes: r.node.ByteMatch6, Note: r.notes.of(seg), Peers: r.peersOf(seg)}, &r.parts, r.most}
		var changed []*table
		old := seg.tables
		noteFronts(r, seg, x.Note)
		relisted := seg.compile(x, r.dirty.segments[seg], &changed)
		r.refilter(seg)
		for _, t := range changed {
			r.dirty.tables[t.name] = struct{}{}
			if len(t.rules) > 0 {
				r.tables[t.name] = t
			}
		}
		if !relisted {
			continue
		}
		r.dirty.remote = r.dirty.remote || seg.host || (seg.scope.egress || len(r.refuser.of) > 0) && len(r.outbound) > 0
		for _, t := range old {
			r.dirty.tables[t.name] = struct{}{}
			delete(r.tables, t.name)
		}
		for _, t := range seg.tables {
			r.tables[t.name] = t
		}
		for p := range r.ofSegment[seg] {
			for i := range p.users {
				r.dirty.ifaces[i] = struct{}{}
			}
		}
	}
	clear(r.dirty.segments)
}
