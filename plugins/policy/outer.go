package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// exposed is a service with addresses other than cluster IPs, and what follows from them.
type exposed struct {
	svc   *renderer.ContivService
	outer []dataplane.Outer
}

// expose takes a service as it is now.
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

// hide forgets a service.
func (t *Translations) hide(id model.ServiceID) {
	if t.exposed[id] != nil {
		delete(t.exposed, id)
		t.stale, t.changed = true, true
	}
}

// exposeAgain works out again what depends on the nodes.
func (t *Translations) exposeAgain() {
	for _, e := range t.exposed {
		t.expose(e.svc)
	}
}

// outers are those of all services, the same slice as long as nothing changes.
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

func compareOuter(a, b dataplane.Outer) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
}

// outerOf is where a service is reached besides its cluster IPs, each address and port once. It agrees with renderer/nat44: policy
// Cluster hides clients behind the node's loopback if there is one, and leaves other nodes' addresses to them; policy Local
// keeps clients, and leads to endpoints of this node if there are any.
func (t *Translations) outerOf(svc *renderer.ContivService) []dataplane.Outer {
	var out []dataplane.Outer
	for _, name := range svc.PortNames() {
		port := svc.Ports[name]
		if port.Protocol != renderer.TCP && port.Protocol != renderer.UDP {
			continue
		}
		for _, a := range svc.ExternalIPs.Addrs() {
			if !svc.ClusterIPs.Contains(a) {
				out = t.appendOuter(out, svc, name, renderer.Frontend{IP: a, Port: port.Port, Protocol: port.Protocol}, false)
			}
		}
		if port.NodePort != 0 {
			for _, a := range t.nodeIPs.Addrs() {
				if t.node.ServesNodePorts(a) {
					out = t.appendOuter(out, svc, name, renderer.Frontend{IP: a, Port: port.NodePort, Protocol: port.Protocol}, true)
				}
			}
		}
	}
	slices.SortStableFunc(out, compareOuter)
	return slices.CompactFunc(out, func(a, b dataplane.Outer) bool { return compareOuter(a, b) == 0 })
}

// appendOuter appends one, unless it belongs to another service, is left to another node, or leads nowhere.
func (t *Translations) appendOuter(out []dataplane.Outer, svc *renderer.ContivService, port string, f renderer.Frontend, node bool) []dataplane.Outer {
	if _, taken := svc.ConflictWith(f, node); taken {
		return out
	}
	elsewhere := t.nodeIPs.Contains(f.IP) && !slices.Contains(t.node.IPs, f.IP)
	backends := svc.Backends[port]
	switch {
	case svc.TrafficPolicy == renderer.ClusterWide && elsewhere:
		return out
	case svc.TrafficPolicy == renderer.NodeLocal && !elsewhere:
		if local := svc.Local(port); len(local) > 0 {
			backends = local
		}
	}
	o := dataplane.Outer{
		Addr: f.IP, Proto: uint8(f.Protocol), Port: f.Port,
		Hides: svc.TrafficPolicy == renderer.ClusterWide && t.node.Loopback.IsValid() && t.node.Loopback.Is4() == f.IP.Is4(),
	}
	for _, b := range backends {
		if a := b.Addr(); a.IsValid() && a.Is4() == f.IP.Is4() {
			o.Backends = append(o.Backends, netip.AddrPortFrom(a, b.Port))
		}
	}
	if len(o.Backends) == 0 {
		return out
	}
	return append(out, o)
}
