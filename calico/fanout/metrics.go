package fanout

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the server's metrics, all named contiv_fanout_….
type metrics struct {
	accepted    prometheus.Counter
	refused     *prometheus.CounterVec // by reason
	closed      *prometheus.CounterVec // by reason
	connections prometheus.Gauge
	streaming   *prometheus.GaugeVec // by syncer
	sent        *prometheus.CounterVec
	snapshot    *prometheus.HistogramVec
	pong        prometheus.Histogram
	behind      *prometheus.GaugeVec
	limit       prometheus.Gauge

	changes, same, crumbs     *prometheus.CounterVec
	keys, keyBytes, inSyncVec *prometheus.GaugeVec
}

// cacheMetrics are the metrics of one cache.
type cacheMetrics struct {
	changes, same, crumbs    prometheus.Counter
	keys, keyBytes, inSyncAt prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "contiv_fanout_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "contiv_fanout_" + name, Help: help}, labels)
	}
	accepted := counter("connections_accepted_total", "Connections that were accepted.")
	connections := gauge("connections", "Open connections, those before their hello included.")
	limit := gauge("connections_fair", "Connections above which clients are shed to other servers; 0: none are.")
	pong := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "contiv_fanout_pong_seconds", Help: "Time between a ping and its answer.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
	})
	m := &metrics{
		refused:   counter("connections_refused_total", "Connections that never got a snapshot, by reason.", "reason"),
		closed:    counter("connections_closed_total", "Connections that ended after their hello, by reason.", "reason"),
		streaming: gauge("connections_streaming", "Connections that follow the changes of a set of keys.", "syncer"),
		sent:      counter("sent_bytes_total", "Bytes sent to clients, by what they were: snapshot or changes.", "syncer", "what"),
		snapshot: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "contiv_fanout_snapshot_seconds", Help: "Time from a client's hello to the end of its snapshot.", Buckets: prometheus.ExponentialBuckets(0.002, 3, 10),
		}, []string{"syncer"}),
		behind:    gauge("behind_seconds", "Age of the oldest change that some client has not taken yet.", "syncer"),
		changes:   counter("changes_total", "Changes of keys that the source sent.", "syncer"),
		same:      counter("same_total", "Changes from the source that changed nothing and were not sent on.", "syncer"),
		crumbs:    counter("crumbs_total", "Publications of up to 100 changes.", "syncer"),
		keys:      gauge("keys", "Keys held.", "syncer"),
		keyBytes:  gauge("key_bytes", "Bytes of all keys and values held, as they are sent uncompressed.", "syncer"),
		inSyncVec: gauge("status", "Status of the source: 0 waits, 1 resyncs, 2 is in sync.", "syncer"),
		pong:      pong,
	}
	m.accepted, m.connections, m.limit = accepted.WithLabelValues(), connections.WithLabelValues(), limit.WithLabelValues()
	reg.MustRegister(accepted, connections, limit, pong, m.refused, m.closed, m.streaming, m.sent, m.snapshot, m.behind,
		m.changes, m.same, m.crumbs, m.keys, m.keyBytes, m.inSyncVec)
	return m
}

func (m *metrics) cache(name string) *cacheMetrics {
	return &cacheMetrics{
		changes: m.changes.WithLabelValues(name), same: m.same.WithLabelValues(name), crumbs: m.crumbs.WithLabelValues(name),
		keys: m.keys.WithLabelValues(name), keyBytes: m.keyBytes.WithLabelValues(name), inSyncAt: m.inSyncVec.WithLabelValues(name),
	}
}

// published records a new view and the number of crumbs that led to it.
func (m *cacheMetrics) published(v *view, crumbs uint64) {
	m.crumbs.Add(float64(crumbs))
	keys, bytes := v.countKeys()
	m.keys.Set(float64(keys))
	m.keyBytes.Set(float64(bytes))
	m.inSyncAt.Set(float64(v.crumb.status))
}
