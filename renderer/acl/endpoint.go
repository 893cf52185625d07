package acl

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/group"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// workloadID names a workload endpoint.
type workloadID struct{ orchestrator, workload, endpoint string }

func workloadIDOf(id *felix.WorkloadEndpointID) workloadID {
	return workloadID{id.GetOrchestratorId(), id.GetWorkloadId(), id.GetEndpointId()}
}

func (id workloadID) compare(o workloadID) int {
	return cmp.Or(cmp.Compare(id.orchestrator, o.orchestrator), cmp.Compare(id.workload, o.workload), cmp.Compare(id.endpoint, o.endpoint))
}

// workload is a workload endpoint.
type workload struct {
	id      workloadID
	addrs   []netip.Addr
	allowed []netip.Prefix // sources beside addrs that the source check may allow
	specs   [2]policy.Spec // in, out
}

func newWorkload(id workloadID, e *felix.WorkloadEndpoint) *workload {
	w := &workload{id: id}
	for _, list := range [][]string{e.GetIpv4Nets(), e.GetIpv6Nets()} {
		for _, text := range list {
			if p, err := netset.Parse(text); err == nil && p.IsSingleIP() {
				w.addrs = append(w.addrs, p.Addr())
			}
		}
	}
	for _, text := range e.GetAllowSpoofedSourcePrefixes() {
		if p, err := netset.Parse(text); err == nil {
			w.allowed = append(w.allowed, p)
		}
	}
	for i := range w.specs {
		w.specs[i] = policy.SpecOf(i == 1, e.GetTiers(), e.GetProfileIds())
		w.specs[i].Down = e.GetState() != "active"
	}
	return w
}

// iface is the interface of a local pod.
type iface struct {
	name  string
	addrs []netip.Addr // sorted: the pod's
	work  []*workload  // endpoints of the interface, by id: normally one
	progs [2]*program  // in, out; nil: isolated

	exposed  []node.Exposure       // ports that hidden clients reach; sorted
	residues map[*program]*residue // packets that other pods may not send to this pod
	served   *law.Ports            // high ports of the pod
	groups   []*residueGroup       // as tables
}

// locate finds the interfaces and their pods.
func (r *Renderer) locate() {
	if !r.dirty.node && !r.dirty.places && !r.dirty.outer {
		return
	}
	now := r.places()
	for name, old := range r.ifaces {
		if now[name] == nil {
			r.assign(old, [2]*policy.Spec{})
			delete(r.ifaces, name)
			delete(r.dirty.ifaces, old)
			r.store.Forget(node.OwnName(name))
			r.store.Forget(node.SelfName(name))
			r.store.Forget(hairpinTable(name))
			r.store.Forget(table.SourceOnly + table.NameOf(name))
			r.store.Forget(table.SourceFirst + table.NameOf(name))
			r.letThrough(name, lists.Lists{}, nil)
			r.groups.Release(old.groups)
			r.refuser.leave(old)
			r.out.Remove(name)
			r.notes.Forget("interface\x00" + name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		i, n := r.ifaces[name], now[name]
		if i == nil {
			i = &iface{name: name}
			r.ifaces[name] = i
			r.dirty.ifaces[i] = struct{}{}
		}
		if r.dirty.node || !slices.Equal(i.addrs, n.addrs) {
			r.dirty.targets[i] = struct{}{}
			r.sourcesChanged(i.progs[1])
		}
		if r.dirty.node || !slices.Equal(i.addrs, n.addrs) || !slices.Equal(i.work, n.work) {
			r.dirty.ifaces[i] = struct{}{}
		}
		if !slices.Equal(i.work, n.work) {
			r.refuser.moved = true
		}
		i.addrs, i.work = n.addrs, n.work
		r.assign(i, i.specs())
	}
	if r.bytes != r.node.ByteMatch6 {
		r.bytes = r.node.ByteMatch6
		for _, p := range r.programs {
			r.dirty.programs[p] = struct{}{}
		}
	}
	if r.dirty.node {
		for _, t := range r.node.Tables() {
			r.store.Fix(t)
		}
		r.dirty.remote, r.dirty.outer = true, true
	}
	r.findServed()
	r.expose()
	r.dirty.host = r.dirty.host || len(r.exits) > 0 // near includes pods
	r.dirty.node, r.dirty.places = false, false
}

// specs returns the specs of the interface's endpoint. While an address belongs to two pods at once (one ends, the other has
// begun), their specs have to agree; otherwise the pod of a packet is unknown.
func (i *iface) specs() [2]*policy.Spec {
	var out [2]*policy.Spec
	for d := range out {
		for _, w := range i.work {
			if s := &w.specs[d]; out[d] != nil && out[d].Key() != s.Key() {
				return [2]*policy.Spec{}
			}
			out[d] = &w.specs[d]
		}
	}
	return out
}

// places returns the interfaces of local pods, with the endpoints that have one of their addresses.
func (r *Renderer) places() map[string]*iface {
	out := map[string]*iface{}
	for a, name := range r.node.Interfaces {
		if out[name] == nil {
			out[name] = &iface{name: name}
		}
		out[name].addrs = append(out[name].addrs, a)
	}
	for _, name := range r.node.Isolated {
		if out[name] == nil {
			out[name] = &iface{name: name}
		}
	}
	for _, w := range r.workloads {
		for _, a := range w.addrs {
			if i := out[r.node.Interfaces[a]]; i != nil && !slices.Contains(i.work, w) {
				i.work = append(i.work, w)
			}
		}
	}
	for _, i := range out {
		for _, w := range i.work {
			i.addrs = append(i.addrs, w.addrs...)
		}
		slices.SortFunc(i.addrs, netip.Addr.Compare)
		i.addrs = slices.Compact(i.addrs)
		slices.SortFunc(i.work, func(a, b *workload) int { return a.id.compare(b.id) })
	}
	return out
}

// assign gives an interface the programs of specs; nil: none.
func (r *Renderer) assign(i *iface, specs [2]*policy.Spec) {
	for d, s := range specs {
		old := i.progs[d]
		key := ""
		if s != nil {
			key = s.Key()
		}
		if old != nil && old.key == key || old == nil && s == nil {
			continue
		}
		r.dirty.ifaces[i] = struct{}{}
		i.progs[d] = nil
		if s != nil {
			i.progs[d] = r.program(key, s)
			i.progs[d].users[i] = struct{}{}
			r.sourcesChanged(i.progs[d])
		}
		if old != nil {
			r.sourcesChanged(old)
			delete(old.users, i)
			r.dirty.left = append(r.dirty.left, old)
		}
	}
}

// program returns the program with a key, and makes it if absent.
func (r *Renderer) program(key string, s *policy.Spec) *program {
	p := r.programs[key]
	if p == nil {
		p = &program{key: key, spec: *s, users: map[*iface]struct{}{}, part: group.PartOf(key)}
		r.programs[key] = p
		s.Each(func(id policy.ID) { r.ofPolicy.Add(id, p) }, func(name string) { r.ofProfile.Add(name, p) })
		r.dirty.programs[p] = struct{}{}
	}
	return p
}

// sourcesChanged marks a program whose users, or their addresses, changed; nil: none.
func (r *Renderer) sourcesChanged(p *program) {
	if p != nil && p.spec.Egress {
		r.dirty.outbound[p] = struct{}{}
	}
}

// forget drops programs without users. It runs after their replacements were made, because both share segments.
func (r *Renderer) forget() {
	for _, p := range r.dirty.left {
		if len(p.users) > 0 || r.programs[p.key] != p {
			continue
		}
		delete(r.programs, p.key)
		delete(r.dirty.programs, p)
		p.spec.Each(func(id policy.ID) { r.ofPolicy.Remove(id, p) }, func(name string) { r.ofProfile.Remove(name, p) })
		uses := p.uses
		p.uses = nil
		for _, u := range uses {
			r.release(p, u.Seg)
		}
	}
	r.dirty.left = nil
}

func sortedIfaces(m map[*iface]struct{}) []*iface {
	return slices.SortedFunc(maps.Keys(m), func(a, b *iface) int { return cmp.Compare(a.name, b.name) })
}

func (w *workload) ref() model.Ref { return model.Ref{Kind: KindWorkload, Name: w.id.workload} }

// servedBy returns the ports that an interface's pod serves, according to the node and the policies that apply to the pod.
func (r *Renderer) servedBy(i *iface) *law.Ports {
	var spans [2][]match.Span
	for _, s := range r.node.Served {
		if slices.Contains(i.addrs, s.Addr) {
			k := match.InOut(s.Proto == match.UDP)
			spans[k] = append(spans[k], match.Span{Lo: s.First, Hi: s.Last})
		}
	}
	for _, w := range i.work {
		tcp, udp := r.book.Served(&w.specs[0])
		spans[0], spans[1] = append(spans[0], tcp...), append(spans[1], udp...)
	}
	return law.NewPorts(spans[0], spans[1])
}

// findServed updates the served ports of interfaces.
func (r *Renderer) findServed() {
	for _, i := range r.ifaces {
		if now := r.servedBy(i); now.Key() != i.served.Key() {
			i.served = now
			r.dirty.ifaces[i] = struct{}{}
			r.dirty.remote = true
		}
	}
}

// program is a spec as one list of steps, shared by the endpoints that have it.
type program struct {
	key   string
	spec  policy.Spec
	steps policy.Steps
	uses  []table.Use // the steps
	users map[*iface]struct{}
	open  bool // everything is allowed
	free  bool // host endpoints make all its denials
	part  int  // of residues
}

// GroupKey is the program's key.
func (p *program) GroupKey() string { return p.key }

// Part is the part of the tables of the program's residues.
func (p *program) Part() int { return p.part }

// closes reports whether a program restricts pods that may send.
func (p *program) closes() bool { return p != nil && !p.open && !p.spec.Down }

// flatten returns the steps of a spec, the last of which decides everything.
func (r *Renderer) flatten(s *policy.Spec) policy.Steps { return r.book.Flatten(s, r.node.ByteMatch6) }
