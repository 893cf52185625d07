package kubeproxy

import (
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// dropping counts the ports of Services whose traffic this node drops: their policy is Local, they have endpoints, and none of these
// is on this node. It is what kube-proxy counts under this name (pkg/proxy/nftables, v1.36).
type dropping struct {
	gauges [2][2]prometheus.Gauge // as drops
	ports  map[model.ServiceID]drops
	all    drops
}

// drops are numbers of ports by policy (internal, external) and family (IPv4, IPv6).
type drops [2][2]float64

var _ renderer.ServiceListener = (*dropping)(nil)

// Dropping returns a counter for the metric of Services whose traffic this node drops. It knows no Service yet.
func (m *Metrics) Dropping() renderer.ServiceListener {
	d := &dropping{ports: map[model.ServiceID]drops{}}
	for policy, name := range []string{"internal", "external"} {
		for family, ip := range []string{familyIPv4, familyIPv6} {
			d.gauges[policy][family] = m.noLocal.WithLabelValues(name, ip) // by traffic_policy and ip_family
		}
	}
	d.show()
	return d
}

// ServiceChanged implements renderer.ServiceListener.
func (d *dropping) ServiceChanged(old, now *renderer.ContivService) {
	if now == nil {
		d.setDrops(old.ID, drops{})
	} else {
		d.setDrops(now.ID, dropsOf(now))
	}
}

func (d *dropping) setDrops(id model.ServiceID, now drops) {
	was := d.ports[id]
	if was == now {
		return
	}
	for policy := range d.all {
		for family := range d.all[policy] {
			d.all[policy][family] += now[policy][family] - was[policy][family]
		}
	}
	if delete(d.ports, id); now != (drops{}) {
		d.ports[id] = now
	}
	d.show()
}

func (d *dropping) show() {
	for policy := range d.all {
		for family, n := range d.all[policy] {
			d.gauges[policy][family].Set(n)
		}
	}
}

// dropsOf counts the ports of one Service, in each family of its cluster IPs.
func dropsOf(svc *renderer.ContivService) (out drops) {
	if svc.InternalTrafficPolicy != renderer.NodeLocal && svc.TrafficPolicy != renderer.NodeLocal {
		return out
	}
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

// any6 reports whether an endpoint has the family.
func any6(endpoints []*renderer.ServiceBackend, v6 bool) bool {
	for _, b := range endpoints {
		if b.Addr().IsValid() && b.Addr().Is6() == v6 {
			return true
		}
	}
	return false
}
