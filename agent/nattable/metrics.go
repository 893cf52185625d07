package nattable

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of the session table. They name nobody: everyone who reaches the listener reads them.
type Metrics struct {
	sessions, limit prometheus.Gauge
	holders         *prometheus.GaugeVec   // by rank and kind; only the largest
	freed           *prometheus.CounterVec // by reason
	drains          *prometheus.CounterVec // by result
}

// NewMetrics returns metrics without samples.
func NewMetrics() *Metrics {
	return &Metrics{
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "contiv_nat_sessions", Help: "NAT44 sessions in use."}),
		limit:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "contiv_nat_sessions_limit", Help: "NAT44 sessions VPP has room for; a full table drops new flows."}),
		holders: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "contiv_nat_holder_sessions",
			Help: "NAT44 sessions of the clients with most connections, by rank (1 to 5) and kind (pod of this node, other); if half of the table is in use. " +
				"The status command names the clients.",
		}, []string{"rank", "kind"}),
		freed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "contiv_nat_sessions_freed_total",
			Help: "NAT44 sessions the agent freed because the table was nearly full, by reason: expired, evicted (of a pod above its share).",
		}, []string{"reason"}),
		drains: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "contiv_nat_drains_total",
			Help: "Endpoints of NAT44 that were to get no new connections and to keep theirs, by result: drained, not drained (their connections ended at once). " +
				"Each frontend of a Service counts.",
		}, []string{"result"}),
	}
}

// Register registers all metrics.
func (m *Metrics) Register(r prometheus.Registerer) error {
	return errors.Join(r.Register(m.sessions), r.Register(m.limit), r.Register(m.holders), r.Register(m.freed), r.Register(m.drains))
}
