package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy/services"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// served returns the served ports of local pods that have an interface, sorted.
func (p *Processor) served(interfaces map[netip.Addr]string) []dataplane.Served {
	var out []dataplane.Served
	add := func(a netip.Addr, proto model.Protocol, port uint16) {
		if s, ok := services.Hinted(a, proto, port); ok && interfaces[a] != "" {
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
	for s := range p.translations.Served() {
		add(s.Addr, model.Protocol(s.Proto), s.First)
	}
	slices.SortFunc(out, func(a, b dataplane.Served) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.First, b.First))
	})
	return slices.Compact(out)
}
