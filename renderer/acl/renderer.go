package acl

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/acl/closed"
	"github.com/contiv-agent/contiv-agent/renderer/acl/egress"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/host"
	"github.com/contiv-agent/contiv-agent/renderer/acl/interim"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/acl/outer"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/source"
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
	// Limits bound the copies of closed pods' policies at the inputs of other pods (package closed): rules and access lists. Zero: nothing does.
	Limits budget.Limits
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
	inSync bool
	news   bool // a message arrived since the last check of it

	pods   *endpoint.Pods // what was received, and the programs made from it
	egress *egress.Evaluator
	outer  *outer.Evaluator
	checks *source.Checks
	closed *closed.Refuser
	hosts  *host.Endpoints
	packs  *lists.Packs
	remote map[string]lists.Lists // lists of interfaces that are not a pod's

	out *interim.Output
}

// New returns a renderer that has sent its sink nothing yet; cfg must be valid.
func New(cfg Config, sink renderer.Sink) *Renderer {
	w := endpoint.World{Node: &node.Node{}, Sets: match.Sets{}, Book: policy.NewBook(), Store: table.NewStore(), Notes: note.NewBook()}
	w.Segs = table.NewSegments(w.Store, w.Sets, w.Notes, table.MaxRules)
	r := &Renderer{
		cfg: cfg, sink: sink, pods: endpoint.New(w), packs: lists.NewPacks(w.Store, w.Segs, cfg.maxACLs()),
	}
	r.hosts = host.New(r.pods, r.packs)
	r.out = interim.NewOutput(sink, w.Store, facts{r}, cfg.maxACLs(), cfg.Evaluated)
	r.egress = egress.New(r.pods, r.packs, cfg.maxACLs())
	r.outer = outer.New(r.pods, r.egress)
	r.checks = source.New(r.pods, cfg.SourceCheck)
	r.closed = closed.New(r.pods, r.packs, r.egress, r.checks, cfg.Limits)
	return r
}

// OnUpdate takes one message. The renderer keeps it: do not change it afterwards.
func (r *Renderer) OnUpdate(m *felix.ToDataplane) {
	r.news = true
	switch m := m.GetPayload().(type) {
	case *felix.ToDataplane_ConfigUpdate:
		r.hosts.Configure(m.ConfigUpdate.GetConfig())
		r.checks.Configure(m.ConfigUpdate.GetConfig())
	case *felix.ToDataplane_InSync:
		r.inSync = true
	case *felix.ToDataplane_IpsetUpdate:
		r.pods.Sets[m.IpsetUpdate.GetId()] = match.NewSet(m.IpsetUpdate)
		r.setReplaced(m.IpsetUpdate.GetId())
	case *felix.ToDataplane_IpsetDeltaUpdate:
		r.setChanged(m.IpsetDeltaUpdate)
	case *felix.ToDataplane_IpsetRemove:
		delete(r.pods.Sets, m.IpsetRemove.GetId())
		r.setReplaced(m.IpsetRemove.GetId())
	case *felix.ToDataplane_ActivePolicyUpdate, *felix.ToDataplane_ActivePolicyRemove,
		*felix.ToDataplane_ActiveProfileUpdate, *felix.ToDataplane_ActiveProfileRemove:
		r.pods.Places = r.pods.Book.OnUpdate(m) || r.pods.Places
	case *felix.ToDataplane_WorkloadEndpointUpdate:
		r.pods.PutWorkload(endpoint.NewWorkload(endpoint.IDOf(m.WorkloadEndpointUpdate.GetId()), m.WorkloadEndpointUpdate.GetEndpoint()))
	case *felix.ToDataplane_WorkloadEndpointRemove:
		r.pods.RemoveWorkload(endpoint.IDOf(m.WorkloadEndpointRemove.GetId()))
	case *felix.ToDataplane_HostEndpointUpdate:
		r.hosts.PutEndpoint(m.HostEndpointUpdate)
	case *felix.ToDataplane_HostEndpointRemove:
		r.hosts.RemoveEndpoint(m.HostEndpointRemove.GetId().GetEndpointId())
	}
}

// setReplaced marks the users of a set that is new, removed or sent again.
func (r *Renderer) setReplaced(id string) {
	r.pods.Segs.SetReplaced(id)
	r.egress.SetReplaced(id)
	r.closed.SetReplaced(id)
}

func (r *Renderer) setChanged(m *felix.IPSetDeltaUpdate) {
	changed, replaced := r.pods.Sets.Change(m)
	if replaced {
		r.setReplaced(m.GetId())
		return
	}
	r.pods.Segs.SetChanged(m.GetId(), changed)
	r.egress.MembersChanged(m)
}

// SetNode takes the complete state of the node.
func (r *Renderer) SetNode(n dataplane.Node) {
	if !dataplane.SameOuter(r.pods.Node.Outer, n.Outer) {
		r.pods.Outer, r.pods.Hosts, r.pods.Leaving, r.news = true, true, true, true
		r.out.Resent()
	}
	if !slices.Equal(r.pods.Node.Served, n.Served) {
		r.pods.Places, r.news = true, true
	}
	if r.pods.Node.EqualButPorts(&n) {
		r.pods.Node.Outer, r.pods.Node.Served = n.Outer, n.Served
		return
	}
	if r.pods.Node.ByteMatch6 != n.ByteMatch6 || !slices.Equal(r.pods.Node.Peers, n.Peers) || !slices.Equal(r.pods.Node.Addrs, n.Addrs) {
		r.pods.Segs.RewriteAll()
	}
	if !slices.Equal(r.pods.Node.Frontends, n.Frontends) {
		r.out.Resent()
	}
	r.pods.Node.Node, r.news = n, true
	r.pods.Facts, r.pods.Places, r.pods.Hosts = true, true, true
}

// Behind takes how far VPP is. While it may lack a part of the changes sent so far, an opening waits if it concerns a packet that one of these changes closes
// at another interface. Where connections to an endpoint end, no interface opens for packets to it before VPP has the translations. Between reports whether the
// sink has an interim state whose rest follows.
func (r *Renderer) Behind(p dataplane.Progress) (between bool) { return r.out.Behind(p) }

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
	r.hosts.FindExits()
	r.refresh()
	r.evaluate()
	r.hosts.Evaluate()
	r.compile()
	for _, i := range endpoint.Sorted(r.pods.Lists) {
		r.list(i)
	}
	clear(r.pods.Lists)
	r.listRemote()
	if r.packs.Repack(r.out.Uses) {
		for _, name := range slices.Sorted(maps.Keys(r.pods.Ifaces)) {
			r.list(r.pods.Ifaces[name])
		}
		r.pods.Leaving = true
		r.listRemote()
		r.packs.Repack(r.out.Uses)
	}
}

// refresh flattens again the programs whose policies changed.
func (r *Renderer) refresh() {
	r.pods.Refresh(r.hosts.BehindExits)
	r.noteRules()
	r.hosts.PoliciesChanged()
	r.pods.Book.Settled()
}

// locate finds the interfaces and their pods.
func (r *Renderer) locate() {
	if !r.pods.Facts && !r.pods.Places && !r.pods.Outer {
		return
	}
	for _, i := range r.pods.Locate() {
		r.forgetIface(i)
	}
	if r.pods.Facts {
		for _, t := range r.pods.Node.Tables() {
			r.pods.Store.Fix(t)
		}
		r.pods.Leaving, r.pods.Outer = true, true
	}
	r.outer.Expose()
	r.hosts.PodsMoved()
	r.pods.Facts, r.pods.Places = false, false
}

// forgetIface forgets an interface that exists no more.
func (r *Renderer) forgetIface(i *endpoint.Iface) {
	for _, t := range []string{node.OwnName(i.Name), node.SelfName(i.Name)} {
		r.pods.Store.Forget(t)
	}
	r.letThrough(i.Name, lists.Lists{}, nil)
	r.egress.ForgetIface(i)
	r.outer.ForgetIface(i)
	r.closed.ForgetIface(i)
	r.checks.ForgetIface(i)
	r.out.Remove(i.Name)
	r.pods.Notes.Forget("interface\x00" + i.Name)
}

// evaluate updates everything that other lists than a pod's own decide about the pod's packets.
func (r *Renderer) evaluate() {
	changed := r.egress.Update()
	r.outer.Evaluate(changed)
	r.egress.Evaluate(changed, !r.hosts.Empty())
	r.closed.Evaluate()
	r.pods.Evaluated()
}

// compile compiles the segments whose clauses or sets changed.
func (r *Renderer) compile() {
	begin := func(seg *table.Segment, note func(*match.Clause, string, ...any)) []netip.Prefix {
		r.outer.NoteFronts(seg, note)
		return r.peersOf(seg)
	}
	r.pods.Segs.Compile(r.pods.Node.ByteMatch6, begin, func(seg *table.Segment, relisted bool) {
		r.refilter(seg)
		if !relisted {
			return
		}
		r.pods.Leaving = r.pods.Leaving || seg.Host || (seg.Scope.Egress || !r.closed.Empty()) && !r.egress.Empty()
		r.pods.UsersOf(seg, r.pods.Relist)
	})
}

// Resync sends everything to the sink again.
func (r *Renderer) Resync() {
	r.out.Resync()
	r.pods.Notes.Resend()
	r.flush()
}

// facts are what the output asks about interfaces.
type facts struct{ r *Renderer }

// Addrs returns the addresses of a local pod's interface; false: it is no pod's.
func (f facts) Addrs(iface string) ([]netip.Addr, bool) {
	if i := f.r.pods.Ifaces[iface]; i != nil {
		return i.Addrs, true
	}
	return nil, false
}

// Isolated returns the lists of an interface that nothing may pass.
func (f facts) Isolated() lists.Lists { return f.r.isolated() }

// Node returns the node.
func (f facts) Node() *dataplane.Node { return &f.r.pods.Node.Node }
