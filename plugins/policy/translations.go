package policy

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// Translations is a renderer of services that renders nothing: it counts the addresses that services translate, for they
// are no destination a policy can judge, and keeps what is known about the node. Being told what the other renderers are
// told, it agrees with them, and costs what changes.
type Translations struct {
	node      renderer.NodeState
	uses      map[netip.Addr]int // addresses of services → how many have it
	nodePorts map[model.ServiceID]bool
	nodeIPs   []netip.Addr
	changed   bool // since taken was called
}

var (
	_ renderer.ServiceRendererAPI = (*Translations)(nil)
	_ renderer.NodeRenderer       = (*Translations)(nil)
)

func newTranslations() *Translations {
	return &Translations{uses: map[netip.Addr]int{}, nodePorts: map[model.ServiceID]bool{}, changed: true}
}

// count adds a service once, or takes it away.
func (t *Translations) count(svc *renderer.ContivService, by int) {
	for _, set := range []*renderer.IPAddresses{svc.ClusterIPs, svc.ExternalIPs} {
		for _, a := range set.Addrs() {
			before := t.uses[a]
			if t.uses[a] = before + by; t.uses[a] == 0 {
				delete(t.uses, a)
			}
			t.changed = t.changed || (before == 0 || before+by == 0) && !t.ranged(a)
		}
	}
	if !svc.HasNodePort() {
		return
	}
	before := len(t.nodePorts) > 0
	if by > 0 {
		t.nodePorts[svc.ID] = true
	} else {
		delete(t.nodePorts, svc.ID)
	}
	t.changed = t.changed || before != (len(t.nodePorts) > 0)
}

// ranged tells whether an address is in a range cluster IPs are from: nothing but a service is there, in any case.
func (t *Translations) ranged(a netip.Addr) bool {
	return slices.ContainsFunc(t.node.ServiceCIDRs, func(r netip.Prefix) bool { return r.Contains(a) })
}

// AddService implements renderer.ServiceRendererAPI.
func (t *Translations) AddService(svc *renderer.ContivService) error {
	t.count(svc, 1)
	return nil
}

// UpdateService implements renderer.ServiceRendererAPI.
func (t *Translations) UpdateService(old, now *renderer.ContivService, _ []*renderer.ContivService) error {
	if old.ClusterIPs.Equal(now.ClusterIPs) && old.ExternalIPs.Equal(now.ExternalIPs) && old.HasNodePort() == now.HasNodePort() {
		return nil
	}
	t.count(old, -1)
	t.count(now, 1)
	return nil
}

// DeleteService implements renderer.ServiceRendererAPI.
func (t *Translations) DeleteService(svc *renderer.ContivService, _ []*renderer.ContivService) error {
	t.count(svc, -1)
	return nil
}

// UpdateNodePortServices implements renderer.ServiceRendererAPI.
func (t *Translations) UpdateNodePortServices(nodeIPs *renderer.IPAddresses, _ []*renderer.ContivService) error {
	t.nodeIPs, t.changed = nodeIPs.Addrs(), true
	return nil
}

// UpdateLocalFrontendIfs implements renderer.ServiceRendererAPI.
func (t *Translations) UpdateLocalFrontendIfs(_, _ renderer.Interfaces) error { return nil }

// UpdateLocalBackendIfs implements renderer.ServiceRendererAPI.
func (t *Translations) UpdateLocalBackendIfs(_, _ renderer.Interfaces) error { return nil }

// UpdateNode implements renderer.NodeRenderer.
func (t *Translations) UpdateNode(node renderer.NodeState) error {
	t.node, t.changed = node, true
	return nil
}

// Resync implements renderer.ServiceRendererAPI.
func (t *Translations) Resync(ev *renderer.ResyncEventData) error {
	clear(t.uses)
	clear(t.nodePorts)
	for _, svc := range ev.Services {
		t.count(svc, 1)
	}
	t.nodeIPs, t.changed = ev.NodeIPs.Addrs(), true
	return nil
}

// fill writes down in a driver's node what services and the node itself contribute.
func (t *Translations) fill(n *Node) {
	n.Uplink, n.Overlay, n.Host = t.node.Uplink, t.node.Overlay, t.node.Host
	n.Addrs = slices.Clone(t.node.IPs)
	for _, p := range t.node.UplinkIPs {
		n.Addrs = append(n.Addrs, p.Addr())
	}
	n.Addrs = sorted(n.Addrs)
	if t.node.Loopback.IsValid() {
		n.Hairpin = []netip.Addr{t.node.Loopback}
	}
	n.Frontends = t.frontends()
}

// frontends are the ranges of cluster IPs, and the addresses of services that are in none of them.
func (t *Translations) frontends() []netip.Prefix {
	var addrs []netip.Addr
	for a := range t.uses {
		addrs = append(addrs, a)
	}
	if len(t.nodePorts) > 0 {
		addrs = append(addrs, t.nodeIPs...)
	}
	var out []netip.Prefix
	for _, r := range t.node.ServiceCIDRs {
		out = append(out, r.Masked())
	}
	for _, a := range addrs {
		if !t.ranged(a) {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

func sorted(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
