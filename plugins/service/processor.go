package service

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/parallel"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// New returns a processor without objects. Renderers receive nothing before the first Resync or Flush.
func New(cfg Config, renderers ...renderer.ServiceRendererAPI) *Processor {
	p := &Processor{
		cfg:        cfg,
		services:   map[model.ServiceID]*service{},
		slices:     map[model.SliceID]*part{},
		users:      newUsers(),
		nodes:      map[string]*model.Node{},
		ranges:     map[string]*model.ServiceCIDR{},
		claims:     newClaims(),
		shares:     newShares(cfg.Limits),
		pods:       newPods(cfg.NodeName),
		nodesDirty: true,
		stateDirty: true,
		owners:     owners{apiDirty: len(cfg.APIServers) > 0},
		nodePorts:  map[*service]struct{}{},
		frontends:  renderer.NewInterfaces(),
		backends:   renderer.NewInterfaces(),
	}
	for i, api := range renderers {
		p.targets = append(p.targets, newTarget(i, api))
	}
	return p
}

// Apply handles one change of an object; kinds that do not concern services change nothing.
func (p *Processor) Apply(ch event.Change) {
	obj := ch.Object
	if ch.Err != nil {
		obj = nil
	}
	name := model.ServiceID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}
	switch ch.Ref.Kind {
	case model.KindService:
		spec, _ := obj.(*model.Service)
		p.setSpec(name, spec)
	case model.KindEndpointSlice:
		slice, _ := obj.(*model.EndpointSlice)
		p.setSlice(model.SliceID(name), slice)
	case model.KindPod:
		pod, _ := obj.(*model.Pod)
		p.setPod(model.PodID(name), pod)
	case model.KindNode:
		node, _ := obj.(*model.Node)
		p.nodesDirty = putValue(p.nodes, ch.Ref.Name, node) || p.nodesDirty
	case model.KindServiceCIDR:
		cidr, _ := obj.(*model.ServiceCIDR)
		p.nodesDirty = putValue(p.ranges, ch.Ref.Name, cidr) || p.nodesDirty
	}
}

func (p *Processor) setPod(id model.PodID, pod *model.Pod) {
	old := p.pods.ips[id]
	if !p.pods.storePod(id, pod) {
		return
	}
	p.stateDirty = true
	for _, list := range [][]netip.Addr{old, p.pods.ips[id]} {
		for _, a := range list {
			p.claims.claimants(a, p.mark)
		}
	}
}

// podsAmong returns the addresses of a service that pods have; nil: none.
func (p *Processor) podsAmong(svc *renderer.ContivService) *renderer.IPAddresses {
	var found []netip.Addr
	for _, addrs := range []*renderer.IPAddresses{svc.ClusterIPs, svc.ExternalIPs} {
		for _, a := range addrs.Addrs() {
			if len(p.pods.at[a]) > 0 {
				found = append(found, a)
			}
		}
	}
	if found == nil {
		return nil
	}
	return renderer.IPAddressesOf(found...)
}

// putValue stores a value or, given nil, removes it, and reports whether the map changed.
func putValue[K comparable, V any](m map[K]*V, key K, v *V) bool {
	if v == nil {
		_, had := m[key]
		delete(m, key)
		return had
	}
	m[key] = v
	return true
}

func (p *Processor) setSpec(id model.ServiceID, spec *model.Service) {
	if spec == nil && p.services[id] == nil {
		return
	}
	s := p.serviceOf(id)
	s.spec, s.renamed = spec, true
	p.mark(s)
}

func (p *Processor) setSlice(id model.SliceID, now *model.EndpointSlice) {
	if now != nil && now.Service.Name == "" {
		now = nil
	}
	known := p.slices[id]
	if known == nil {
		if now == nil {
			return
		}
		known = &part{id: id}
		p.slices[id] = known
	}
	old := known.now
	if old == nil && now == nil {
		return
	}
	p.owners.apiDirty = p.owners.apiDirty || old != nil && old.Service == apiService || now != nil && now.Service == apiService
	if old != nil && (now == nil || now.Service != old.Service) {
		s := p.serviceOf(old.Service)
		if at, found := s.findSlice(id); found {
			s.parts = slices.Delete(s.parts, at, at+1)
		}
		p.mark(s)
		p.stateDirty = true // these endpoints now belong to another service, which may not be rendered
	}
	if now != nil {
		s := p.serviceOf(now.Service)
		if at, found := s.findSlice(id); found {
			s.parts[at] = now
		} else {
			s.parts = slices.Insert(s.parts, at, now)
		}
		p.mark(s)
	}
	known.now = now
	p.users.queueSlice(known)
}

func (s *service) findSlice(id model.SliceID) (int, bool) {
	return slices.BinarySearchFunc(s.parts, id.Name, func(part *model.EndpointSlice, name string) int {
		return cmp.Compare(part.ID.Name, name)
	})
}

// concerns reports whether the node's state or interface sets may depend on an endpoint having the address.
func (p *Processor) concerns(a netip.Addr) bool {
	return len(p.pods.at[a]) > 0 || slices.ContainsFunc(p.self.PodCIDRs, func(c netip.Prefix) bool { return c.Contains(a) })
}

// refresh rebuilds the dirty services. It returns them, and the ones whose form changed, sorted by ID.
func (p *Processor) refresh() (dirty, changed []*service) {
	if p.nodesDirty {
		p.refreshNodes()
	}
	if p.owners.apiDirty {
		p.refreshAPI()
	}
	indexed := p.indexUsers()
	for i := 0; i < len(p.dirty); i++ { // the loop appends the rivals of its services
		if p.dirty[i].renamed {
			p.reclaim(p.dirty[i])
		}
	}
	p.weigh()
	env := surroundings{
		node: p.cfg.NodeName, zone: p.self.Zone, isNode: p.claims.nodes.Contains, closed: p.closed,
		keepTerminating: p.cfg.KeepTerminating,
	}
	dirty, p.dirty = p.dirty, nil
	slices.SortFunc(dirty, compareServices)
	type form struct {
		svc   *renderer.ContivService
		notes []model.Note
	}
	forms := make([]form, len(dirty))
	parallel.Ordered(len(dirty), func(i int) { forms[i].svc, forms[i].notes = p.form(dirty[i], env) }, func(i int) {
		s := dirty[i]
		s.marked = false
		if p.rebuilt(s, forms[i].svc, forms[i].notes) {
			changed = append(changed, s)
		}
	})
	p.stateDirty = indexed() || p.stateDirty
	if p.stateDirty {
		p.stateDirty = false
		p.refreshState()
	}
	return dirty, changed
}

// indexUsers updates the index of endpoint addresses, concurrently if the update is large. No code may read the index before the
// returned function has reported whether the node's state may have changed.
func (p *Processor) indexUsers() (done func() bool) {
	concerned := false
	index := func() {
		p.users.flushQueue(func(a netip.Addr) { concerned = concerned || p.concerns(a) }, func(gone *part) { delete(p.slices, gone.id) })
	}
	if len(p.users.queue) < 100 {
		index()
		return func() bool { return concerned }
	}
	var wg sync.WaitGroup
	wg.Go(index)
	return func() bool { wg.Wait(); return concerned }
}

// reclaim updates the claims of a service. They depend on its spec and on the ranges that are closed to external IPs.
func (p *Processor) reclaim(s *service) {
	s.renamed = false
	var want []ask
	skipped := skipReason(s.spec, p.cfg.ProxyName) != ""
	if s.spec != nil && (!skipped || s.spec.ProxyName != p.cfg.ProxyName) {
		want = s.oneClaim[:0]
		if len(s.claimed) > 0 {
			want = nil
		}
		want = appendAsks(want, s.spec, p.closed, !skipped)
	}
	p.claims.setClaims(s, s.spec, want, p.mark)
}

// form returns the present form of a service, nil if it is not rendered; it changes nothing.
func (p *Processor) form(s *service, env surroundings) (*renderer.ContivService, []model.Note) {
	if skipReason(s.spec, p.cfg.ProxyName) != "" {
		return nil, nil
	}
	refused := p.refused(s)
	parts, crowded := s.parts, p.shares.crowded(s.id)
	if crowded != "" {
		parts = nil
	}
	now, notes := build(s.spec, parts, env, refused)
	if crowded != "" {
		notes = append(notes, noteOn(s.spec, true, "its endpoints are not served, and its addresses reject: %s; %s", crowded, budget.WhyBackends(s.spec, s.parts)))
	}
	if why := p.shares.rangesRefused(s.id); why != "" {
		now.SourceRangesRefused = why
	}
	now.Conflicts = p.claims.conflicts(s, refused)
	now.PodIPs = p.podsAmong(now)
	for _, f := range slices.SortedFunc(maps.Keys(now.Conflicts), renderer.Frontend.Compare) {
		notes = append(notes, noteOn(s.spec, true, "%s is not served: it belongs to Service %s", f, now.Conflicts[f]))
	}
	return now, notes
}

// rebuilt stores a service's new form, and reports whether it differs from the previous one.
func (p *Processor) rebuilt(s *service, now *renderer.ContivService, notes []model.Note) bool {
	s.notes = notes
	if now.Equal(s.built) {
		return false
	}
	p.stateDirty = p.stateDirty || (now == nil) != (s.built == nil)
	p.list(s, now)
	s.built = now
	if now != nil && now.HasNodePort() {
		p.nodePorts[s] = struct{}{}
	} else {
		delete(p.nodePorts, s)
	}
	return true
}

// list puts the new form of a service into all, in place of the old one.
func (p *Processor) list(s *service, now *renderer.ContivService) {
	at, found := p.index(s.id)
	switch {
	case found && now == nil:
		p.all = slices.Delete(p.all, at, at+1)
	case found:
		p.all[at] = now
	case now != nil:
		p.all = slices.Insert(p.all, at, now)
	}
}

func (p *Processor) index(id model.ServiceID) (int, bool) {
	if n := len(p.all); n == 0 || p.all[n-1].ID.Compare(id) < 0 { // a first sync adds them in order
		return n, false
	}
	return slices.BinarySearchFunc(p.all, id, func(svc *renderer.ContivService, id model.ServiceID) int {
		return svc.ID.Compare(id)
	})
}

// others calls f with every rendered service except one. The last service stands in the place of the omitted one, so the view costs
// nothing to make; it is valid until f returns.
func (p *Processor) others(id model.ServiceID, f func([]*renderer.ContivService) error) error {
	at, found := p.index(id)
	if !found {
		return f(p.all[:len(p.all):len(p.all)])
	}
	last := len(p.all) - 1
	p.all[at], p.all[last] = p.all[last], p.all[at]
	defer func() { p.all[at], p.all[last] = p.all[last], p.all[at] }()
	return f(p.all[:last:last])
}
