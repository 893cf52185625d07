package tally

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/flows"
)

// Metrics are the counters of staged policies: at most two for each policy that has a row. They may be read while a tally counts.
type Metrics struct{ changes *prometheus.CounterVec }

func newMetrics() *Metrics {
	return &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "contiv_staged_changes_total",
		Help: "Connections that a staged policy would drop (verdict dropped), and dropped packets that it would let pass (verdict allowed), if it were enforced.",
	}, []string{"policy", "verdict"})}
}

func (m *Metrics) countChange(policy string, would flows.Verdict, n uint64) {
	m.changes.WithLabelValues(policy, string(would)).Add(float64(n))
}

func (m *Metrics) forgetPolicy(policy string) {
	m.changes.DeletePartialMatch(prometheus.Labels{"policy": policy})
}

// Register registers the metrics. Nil metrics register nothing.
func (m *Metrics) Register(r prometheus.Registerer) error {
	if m == nil {
		return nil
	}
	return r.Register(m.changes)
}
