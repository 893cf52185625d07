package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

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

func compareOuter(a, b dataplane.Outer) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
}

// outerOf returns the frontends of a service other than its cluster IPs, each address and port once. It agrees with renderer/nat44:
// policy Cluster hides clients behind the node's loopback, if the node has one, and does not serve other nodes' addresses; policy
// Local keeps client addresses, and leads to endpoints of this node, if any.
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

// appendOuter appends one frontend, unless it belongs to another service, another node serves it, or it has no endpoint.
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
