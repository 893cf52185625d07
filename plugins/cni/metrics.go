package cni

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// metrics are the metrics of a server.
type metrics struct {
	calls   *prometheus.CounterVec   // by verb and code
	seconds *prometheus.HistogramVec // by verb
	owed    prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "contiv_cni_calls_total", Help: "Calls of the CNI plugin that have ended, by verb and code of the CNI specification (0: success).",
		}, []string{"verb", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "contiv_cni_call_duration_seconds", Help: "Duration of calls of the CNI plugin, by verb.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"verb"}),
		owed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "contiv_cni_recorded_deletes", Help: "DELs that are recorded and not yet carried out.",
		}),
	}
	for _, verb := range []string{"ADD", "DEL", "CHECK", "STATUS", "GC"} { // exported from the start
		m.calls.WithLabelValues(verb, "0")
		m.seconds.WithLabelValues(verb)
	}
	return m
}

func (m *metrics) count(verb string, begin time.Time, err error) {
	code := uint(0)
	if err != nil {
		code = asError(err).Code
		if verb == "STATUS" && code != protocol.CodeLimited {
			code = protocol.CodeNotAvailable
		}
	}
	m.calls.WithLabelValues(verb, strconv.FormatUint(uint64(code), 10)).Inc()
	m.seconds.WithLabelValues(verb).Observe(time.Since(begin).Seconds())
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.calls, m.seconds, m.owed} {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.calls, m.seconds, m.owed} {
		c.Collect(ch)
	}
}
