package etcd

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of the source.
type metrics struct {
	connected prometheus.Gauge
	revision  prometheus.Gauge
	keys      *prometheus.GaugeVec // by state
	refused   prometheus.Counter
	resyncs   prometheus.Counter
	changes   prometheus.Counter
	statuses  *prometheus.CounterVec // by result

	read atomic.Bool // etcd's content was read once
}

func newMetrics() *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		connected: gauge("contiv_etcd_connected", "1 while everything in etcd was read and is watched."),
		revision:  gauge("contiv_etcd_revision", "Revision of etcd up to which changes of this node's keys are known."),
		keys:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "contiv_etcd_keys", Help: "Keys stored for this node, by state (good, refused)."}, []string{"state"}),
		refused:   counter("contiv_etcd_refused_total", "Values in etcd that were refused."),
		resyncs:   counter("contiv_etcd_resyncs_total", "Times that everything in etcd was read."),
		changes:   counter("contiv_etcd_changes_total", "Revisions of etcd with changes of this node's keys."),
		statuses:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "contiv_etcd_status_writes_total", Help: "Transactions that write statuses into etcd, by result (ok, failed)."}, []string{"result"}),
	}
	m.stored(0, 0)
	for _, result := range []string{"ok", "failed"} { // exported from the start
		m.statuses.WithLabelValues(result)
	}
	return m
}

// Describe implements prometheus.Collector.
func (s *Source) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.metrics.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (s *Source) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s.metrics.collectors() {
		c.Collect(ch)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.connected, m.revision, m.keys, m.refused, m.resyncs, m.changes, m.statuses}
}

// resynced reports whether etcd's content was read once.
func (m *metrics) resynced() bool { return m.read.Load() }

func (m *metrics) loaded(rev int64) {
	m.read.Store(true)
	m.resyncs.Inc()
	m.connected.Set(1)
	m.revision.Set(float64(rev))
}

func (m *metrics) countChange(rev int64) {
	m.changes.Inc()
	m.revision.Set(float64(rev))
}

func (m *metrics) stored(keys, refused int) {
	m.keys.WithLabelValues("good").Set(float64(keys - refused))
	m.keys.WithLabelValues("refused").Set(float64(refused))
}

func (m *metrics) written(err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.statuses.WithLabelValues(result).Inc()
}
