package services

import (
	"iter"
	"maps"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A pod serves the ports that its containers declare, and the target ports of services. A driver takes every TCP port below
// dataplane.LowestClientPort as a server's. So only higher TCP ports count here, and UDP ports; most pods have none.

// Hinted returns a port as served, if the driver cannot guess it.
func Hinted(a netip.Addr, proto model.Protocol, port uint16) (dataplane.Served, bool) {
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
			s, ok := Hinted(b.Addr(), model.Protocol(proto), b.Port)
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

// Served returns the counted ports, in no order.
func (t *Translations) Served() iter.Seq[dataplane.Served] { return maps.Keys(t.served) }
