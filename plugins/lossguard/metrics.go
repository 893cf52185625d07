package lossguard

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of a guard.
type metrics struct {
	objects *prometheus.GaugeVec // by source
	start   prometheus.Gauge
	holds   prometheus.Counter
}

func newMetrics() metrics {
	return metrics{
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "contiv_removals_held", Help: "Objects whose removal is held, because too many would be removed at once, by source."}, []string{"source"}),
		start:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "contiv_first_sync_held", Help: "1 while the first sync is held, because a source has far fewer objects than before the agent's restart."}),
		holds:   prometheus.NewCounter(prometheus.CounterOpts{Name: "contiv_holds_total", Help: "How often removals, or a first sync, were held."}),
	}
}

// Describe describes all metrics.
func (m metrics) Describe(ch chan<- *prometheus.Desc) {
	m.objects.Describe(ch)
	m.start.Describe(ch)
	m.holds.Describe(ch)
}

// Collect collects all metrics.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	m.objects.Collect(ch)
	m.start.Collect(ch)
	m.holds.Collect(ch)
}

// show records what is held.
func (m metrics) show(held []Held) {
	m.objects.Reset()
	m.start.Set(0)
	for _, h := range held {
		if h.AtStart {
			m.start.Set(1)
			continue
		}
		m.objects.WithLabelValues(h.Source).Set(float64(h.Objects))
	}
}
