package services

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/parallel"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Translations listens to Services. It counts cluster IPs, which no policy can evaluate as destinations, lists the other addresses
// of Services, and stores the node's state. It receives the same changes as the renderers, so it agrees with them.
type Translations struct {
	node    renderer.NodeState
	uses    map[netip.Addr]int // cluster IP → number of services that have it
	fronts  []netip.Prefix     // frontends; nil: to be recomputed. Replaced, never modified
	nodeIPs *renderer.IPAddresses
	exposed map[model.ServiceID]*exposed // services with addresses other than cluster IPs
	outer   []dataplane.Outer            // the outer frontends of all of them, sorted; replaced, never modified
	stale   bool                         // outer is out of date
	served  map[dataplane.Served]int     // port of a local endpoint → number of services that have it
	changed bool                         // changed since the last call of Fill
}

var (
	_ renderer.ServiceListener = (*Translations)(nil)
	_ renderer.NodeIPsListener = (*Translations)(nil)
	_ renderer.NodeRenderer    = (*Translations)(nil)
)

// New returns translations of no Services.
func New() *Translations {
	return &Translations{uses: map[netip.Addr]int{}, exposed: map[model.ServiceID]*exposed{}, served: map[dataplane.Served]int{}, nodeIPs: renderer.NewIPAddresses(), changed: true}
}

// countClusterIPs adds a service's cluster IPs, each once, or removes them. A nil service has none.
func (t *Translations) countClusterIPs(svc *renderer.ContivService, by int) {
	if svc == nil {
		return
	}
	for _, a := range svc.ClusterIPs.Addrs() {
		before := t.uses[a]
		if t.uses[a] = before + by; t.uses[a] == 0 {
			delete(t.uses, a)
		}
		if (before == 0 || before+by == 0) && !t.ranged(a) {
			t.changed, t.fronts = true, nil
		}
	}
}

// ranged reports whether an address is in a range of cluster IPs. Such an address always belongs to a service.
func (t *Translations) ranged(a netip.Addr) bool {
	return slices.ContainsFunc(t.node.ServiceCIDRs, func(r netip.Prefix) bool { return r.Contains(a) })
}

// ServiceChanged implements renderer.ServiceListener.
func (t *Translations) ServiceChanged(old, now *renderer.ContivService) {
	if old == nil || now == nil || !old.ClusterIPs.Equal(now.ClusterIPs) {
		t.countClusterIPs(old, -1)
		t.countClusterIPs(now, 1)
	}
	t.serve(old, -1)
	t.serve(now, 1)
	if now == nil {
		t.hide(old.ID)
	} else {
		t.expose(now)
	}
}

// NodeIPsChanged implements renderer.NodeIPsListener.
func (t *Translations) NodeIPsChanged(nodeIPs *renderer.IPAddresses) {
	t.nodeIPs, t.changed = nodeIPs, true
	t.exposeAgain()
}

// UpdateNode implements renderer.NodeRenderer.
func (t *Translations) UpdateNode(node renderer.NodeState) error {
	t.node, t.changed, t.fronts = node, true, nil
	t.exposeAgain()
	return nil
}

// Node returns the node's state.
func (t *Translations) Node() renderer.NodeState { return t.node }

// Changed reports whether Fill would write other facts than at its last call.
func (t *Translations) Changed() bool { return t.changed }

// Fill writes the facts from services and the node's state into a driver's node.
func (t *Translations) Fill(n *dataplane.Node) {
	t.changed = false
	n.Uplink, n.Overlay, n.Host = t.node.Uplink, t.node.Overlay, t.node.Host
	n.Addrs = slices.Clone(t.node.IPs)
	for _, p := range t.node.UplinkIPs {
		n.Addrs = append(n.Addrs, p.Addr())
	}
	slices.SortFunc(n.Addrs, netip.Addr.Compare)
	n.Addrs, n.HostAddrs = slices.Compact(n.Addrs), t.node.HostIPs
	if t.node.Loopback.IsValid() {
		n.Hairpin = []netip.Addr{t.node.Loopback}
	}
	n.Frontends, n.Outer = t.frontends(), t.outers()
}

// frontends returns the ranges of cluster IPs, and the cluster IPs outside of these ranges.
func (t *Translations) frontends() []netip.Prefix {
	if t.fronts != nil {
		return t.fronts
	}
	var out []netip.Prefix
	for a := range t.uses {
		if !t.ranged(a) {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	for _, r := range t.node.ServiceCIDRs {
		out = append(out, r.Masked())
	}
	parallel.Sort(out, netip.Prefix.Compare)
	t.fronts = slices.Compact(out)
	return t.fronts
}

// exposed is a service with addresses other than cluster IPs, with the frontends that follow from them.
type exposed struct {
	svc   *renderer.ContivService
	outer []dataplane.Outer
}

// expose records the present form of a service.
func (t *Translations) expose(svc *renderer.ContivService) {
	if svc.ExternalIPs.Len() == 0 && !svc.HasNodePort() {
		t.hide(svc.ID)
		return
	}
	now := &exposed{svc, t.outerOf(svc)}
	if old := t.exposed[svc.ID]; old == nil || !dataplane.SameOuter(old.outer, now.outer) {
		t.stale, t.changed = true, true
	}
	t.exposed[svc.ID] = now
}

// hide removes a service.
func (t *Translations) hide(id model.ServiceID) {
	if t.exposed[id] != nil {
		delete(t.exposed, id)
		t.stale, t.changed = true, true
	}
}

// exposeAgain recomputes everything that depends on the nodes.
func (t *Translations) exposeAgain() {
	for _, e := range t.exposed {
		t.expose(e.svc)
	}
}

// outers returns the outer frontends of all services. It returns the same slice until a change.
func (t *Translations) outers() []dataplane.Outer {
	if !t.stale {
		return t.outer
	}
	t.stale, t.outer = false, nil
	for _, e := range t.exposed {
		t.outer = append(t.outer, e.outer...)
	}
	slices.SortFunc(t.outer, compareOuter)
	return t.outer
}
