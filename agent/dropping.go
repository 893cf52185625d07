package agent

import (
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// dropping counts, as a renderer, the ports of services whose traffic this node drops: their policy is Local, they have endpoints,
// and none is here. It is what kube-proxy counts under this name (pkg/proxy/nftables, v1.36).
type dropping struct {
	gauge *prometheus.GaugeVec // by traffic_policy and ip_family
	ports map[model.ServiceID]drops
	all   drops
}

// drops are numbers of ports by policy (internal, external) and family (IPv4, IPv6).
type drops [2][2]float64

var _ renderer.ServiceRendererAPI = (*dropping)(nil)

// newDropping returns a counter that was told of no service.
func newDropping(gauge *prometheus.GaugeVec) *dropping {
	d := &dropping{gauge: gauge, ports: map[model.ServiceID]drops{}}
	d.show()
	return d
}

// AddService implements renderer.ServiceRendererAPI.
func (d *dropping) AddService(svc *renderer.ContivService) error {
	d.set(svc.ID, dropsOf(svc))
	d.show()
	return nil
}

// UpdateService implements renderer.ServiceRendererAPI.
func (d *dropping) UpdateService(_, svc *renderer.ContivService, _ []*renderer.ContivService) error {
	return d.AddService(svc)
}

// DeleteService implements renderer.ServiceRendererAPI.
func (d *dropping) DeleteService(svc *renderer.ContivService, _ []*renderer.ContivService) error {
	d.set(svc.ID, drops{})
	d.show()
	return nil
}

// Resync implements renderer.ServiceRendererAPI.
func (d *dropping) Resync(ev *renderer.ResyncEventData) error {
	d.ports, d.all = map[model.ServiceID]drops{}, drops{}
	for _, svc := range ev.Services {
		d.set(svc.ID, dropsOf(svc))
	}
	d.show()
	return nil
}

// UpdateNodePortServices implements renderer.ServiceRendererAPI: addresses of nodes do not matter.
func (d *dropping) UpdateNodePortServices(*renderer.IPAddresses, []*renderer.ContivService) error {
	return nil
}

// UpdateLocalFrontendIfs implements renderer.ServiceRendererAPI: interfaces do not matter.
func (d *dropping) UpdateLocalFrontendIfs(_, _ renderer.Interfaces) error { return nil }

// UpdateLocalBackendIfs implements renderer.ServiceRendererAPI: interfaces do not matter.
func (d *dropping) UpdateLocalBackendIfs(_, _ renderer.Interfaces) error { return nil }

func (d *dropping) set(id model.ServiceID, now drops) {
	was := d.ports[id]
	for policy := range d.all {
		for family := range d.all[policy] {
			d.all[policy][family] += now[policy][family] - was[policy][family]
		}
	}
	if delete(d.ports, id); now != (drops{}) {
		d.ports[id] = now
	}
}

func (d *dropping) show() {
	for policy, name := range []string{"internal", "external"} {
		for family, ip := range []string{familyIPv4, familyIPv6} {
			d.gauge.WithLabelValues(name, ip).Set(d.all[policy][family])
		}
	}
}

// dropsOf counts the ports of one service. A family counts if the service has a cluster IP of it.
func dropsOf(svc *renderer.ContivService) (out drops) {
	for family, v6 := range []bool{false, true} {
		has := false
		for _, ip := range svc.ClusterIPs.List() {
			a, ok := netip.AddrFromSlice(ip)
			has = has || ok && a.Unmap().Is6() == v6
		}
		if !has {
			continue
		}
		for _, port := range svc.PortNames() {
			local := any6(svc.Local(port), v6)
			if local || !any6(svc.Backends[port], v6) {
				continue
			}
			if svc.InternalTrafficPolicy == renderer.NodeLocal {
				out[0][family]++
			}
			if svc.TrafficPolicy == renderer.NodeLocal {
				out[1][family]++
			}
		}
	}
	return out
}

// any6 reports whether there is an endpoint of the family.
func any6(endpoints []*renderer.ServiceBackend, v6 bool) bool {
	for _, b := range endpoints {
		if b.Addr().IsValid() && b.Addr().Is6() == v6 {
			return true
		}
	}
	return false
}
