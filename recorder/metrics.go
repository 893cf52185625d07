package recorder

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of a recorder.
type metrics struct {
	records                          *prometheus.CounterVec // by result
	written, merged, dropped, failed prometheus.Counter     // of records
	bytes, files                     prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "contiv_recorder_records_total",
			Help: "Records of the flight recorder by result: written, merged (the journal has only the last version of each object, because the disk was too slow), " +
				"dropped (the journal lacks them), failed (attempts to write that began a time without records).",
		}, []string{"result"}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "contiv_recorder_bytes", Help: "Size of the flight recorder's files."}),
		files: prometheus.NewGauge(prometheus.GaugeOpts{Name: "contiv_recorder_files", Help: "Number of the flight recorder's files."}),
	}
	m.written, m.merged = m.records.WithLabelValues("written"), m.records.WithLabelValues("merged")
	m.dropped, m.failed = m.records.WithLabelValues("dropped"), m.records.WithLabelValues("failed")
	return m
}

func (m *metrics) sizes(bytes int64, files int) {
	m.bytes.Set(float64(bytes))
	m.files.Set(float64(files))
}

// Register registers the metrics; a nil Recorder has none.
func (r *Recorder) Register(to prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return errors.Join(to.Register(r.metrics.records), to.Register(r.metrics.bytes), to.Register(r.metrics.files))
}
