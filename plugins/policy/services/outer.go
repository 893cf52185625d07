package services

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

func compareOuter(a, b dataplane.Outer) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
}

// outerOf returns the frontends of a service other than its cluster IPs, each address and port once. It agrees with renderer/nat44:
// policy Cluster hides clients behind the node's loopback, if the node has one; policy Local keeps client addresses, and leads to endpoints of
// this node, if any. Other nodes' addresses are not served here.
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
	if t.nodeIPs.Contains(f.IP) && !slices.Contains(t.node.IPs, f.IP) {
		return out
	}
	backends := svc.Backends[port]
	if local := svc.Local(port); svc.TrafficPolicy == renderer.NodeLocal && len(local) > 0 {
		backends = local
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
