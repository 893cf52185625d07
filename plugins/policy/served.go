package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A pod serves the ports that its containers declare, and the target ports of services. A driver takes every TCP port below
// dataplane.LowestClientPort as a server's. So only higher TCP ports count here, and UDP ports; most pods have none.

// hinted returns a port as served, if the driver cannot guess it.
func hinted(a netip.Addr, proto model.Protocol, port uint16) (dataplane.Served, bool) {
	ok := proto == model.TCP && port >= dataplane.LowestClientPort || proto == model.UDP
	return dataplane.Served{Addr: a, Proto: uint8(proto), First: port, Last: port}, ok
}

// serve counts the ports of a service's local endpoints. A nil service has none.
func (t *Translations) serve(svc *renderer.ContivService, by int) {
	if svc == nil {
		return
	}
	for name, list := range svc.Backends {
		proto := svc.Ports[name].Protocol
		for _, b := range list {
			s, ok := hinted(b.Addr(), model.Protocol(proto), b.Port)
			if !ok || !b.Local || b.HostNetwork {
				continue
			}
			t.changed = true
			if t.served[s] += by; t.served[s] == 0 {
				delete(t.served, s)
			}
		}
	}
}

// served returns the served ports of local pods that have an interface, sorted.
func (p *Processor) served(interfaces map[netip.Addr]string) []dataplane.Served {
	var out []dataplane.Served
	add := func(a netip.Addr, proto model.Protocol, port uint16) {
		if s, ok := hinted(a, proto, port); ok && interfaces[a] != "" {
			out = append(out, s)
		}
	}
	for _, pod := range p.local {
		for _, a := range pod.IPs {
			for _, c := range pod.ContainerPorts {
				add(a, c.Protocol, c.Port)
			}
			for _, n := range pod.Ports {
				add(a, n.Protocol, n.Port)
			}
		}
	}
	for s := range p.translations.served {
		add(s.Addr, model.Protocol(s.Proto), s.First)
	}
	slices.SortFunc(out, func(a, b dataplane.Served) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.First, b.First))
	})
	return slices.Compact(out)
}
