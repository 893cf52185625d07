package flows

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/flows"
)

// Bounds of the number of series.
const (
	mostPolicies = 50
	mostServices = 100
	otherNames   = "other" // of policies and Services beyond the bounds
	noName       = "none"
)

// Meter counts traffic by verdict, direction, policy and Service. The first policies and Services that have traffic get series; others are added
// up in one.
type Meter struct {
	counters   [3]*prometheus.CounterVec // connections, packets, bytes
	services   [3]*prometheus.CounterVec
	incomplete *prometheus.CounterVec
	share      *prometheus.GaugeVec
	policies   named
	dialled    named // Services
}

// named are names that have series.
type named map[string]bool

// bound returns the name, or otherNames if there are most others.
func (n named) bound(name string, most int) string {
	if name == "" {
		return noName
	}
	if !n[name] {
		if len(n) >= most {
			return otherNames
		}
		n[name] = true
	}
	return name
}

// NewMeter returns a meter that has counted nothing.
func NewMeter() *Meter {
	m := &Meter{policies: named{}, dialled: named{}}
	for i, what := range []string{"connections", "packets", "bytes"} {
		m.counters[i] = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "contiv_flows_" + what + "_total",
			Help: what + " of flows (run --flows), by source (capture, sessions, nat44, flowprobe), verdict (allowed, dropped), direction (ingress, egress, none) and policy (none; other: beyond the first 50). " +
				"Each source counts by itself, and a connection between two pods of a node counts in both directions: do not add them up.",
		}, []string{"source", "verdict", "direction", "policy"})
		m.services[i] = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "contiv_flows_service_" + what + "_total", Help: what + " of flows that NAT44 translates, by Service (namespace/name; other: beyond the first 100).",
		}, []string{"service"})
	}
	m.incomplete = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "contiv_flows_incomplete_reads_total", Help: "Reads of a source of flows that could not show all, by source.",
	}, []string{"source"})
	m.share = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "contiv_flows_read_ratio", Help: "Connections in VPP's table that the latest read of a source of flows had (sessions, nat44), as a part of 1.",
	}, []string{"source"})
	return m
}

// Register registers all metrics.
func (m *Meter) Register(r prometheus.Registerer) error {
	err := errors.Join(r.Register(m.incomplete), r.Register(m.share))
	for i := range m.counters {
		err = errors.Join(err, r.Register(m.counters[i]), r.Register(m.services[i]))
	}
	return err
}

// countFlow counts what an observation adds to a flow. A nil Meter counts nothing.
func (m *Meter) countFlow(f *flows.Flow) {
	if m == nil {
		return
	}
	service := ""
	if f.Translation != nil {
		service = f.Translation.Service
	}
	direction := f.Direction
	if direction == "" {
		direction = noName
	}
	policy := m.policies.bound(f.Decision.Policy, mostPolicies)
	if service != "" {
		service = m.dialled.bound(service, mostServices)
	}
	for i, n := range []uint64{f.Connections, f.Packets, f.Bytes} {
		if n == 0 {
			continue
		}
		m.counters[i].WithLabelValues(f.SeenBy, string(f.Verdict), direction, policy).Add(float64(n))
		if service != "" {
			m.services[i].WithLabelValues(service).Add(float64(n))
		}
	}
}

// countIncomplete counts a read that could not show all.
func (m *Meter) countIncomplete(source string) {
	if m != nil {
		m.incomplete.WithLabelValues(source).Inc()
	}
}

// setShare sets what part of VPP's table the latest read of a source had.
func (m *Meter) setShare(s *Source) {
	if m != nil && s.stopsVPP() {
		m.share.WithLabelValues(s.Name).Set(s.Share())
	}
}

// CountIn makes a watcher that does not run yet count in a meter. A nil Watcher counts nothing.
func (w *Watcher) CountIn(m *Meter) {
	if w != nil {
		w.meter = m
	}
}
