package service

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/renderer"
)

// healthCheck counts the endpoints of one service for load balancers: the addresses of its ready endpoints on this node, each once,
// whatever their ports. Terminating endpoints do not count, although clients may still reach them, because the load balancer is to
// send new clients elsewhere.
type healthCheck struct {
	svc  *renderer.ContivService
	port uint16 // 0: no load balancer asks, so nothing is counted
	seen map[netip.Addr]struct{}
}

func (h *healthCheck) countEndpoints(all []endpoint, found []candidate) {
	if h.port == 0 {
		return
	}
	if h.seen == nil {
		h.seen = map[netip.Addr]struct{}{}
	}
	for _, c := range found {
		if e := &all[c.at]; e.local && e.Ready {
			h.seen[e.Addr] = struct{}{}
		}
	}
}

func (h *healthCheck) done() {
	if h.port == 0 {
		return
	}
	h.svc.HealthCheck.NodePort = h.port
	for a := range h.seen {
		if a.Is6() {
			h.svc.HealthCheck.Local6++
		} else {
			h.svc.HealthCheck.Local4++
		}
	}
}
