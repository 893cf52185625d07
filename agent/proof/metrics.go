package proof

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/verify"
)

// Metrics are the metrics of proofs. They also count the agent's requests that change VPP.
type Metrics struct {
	writes atomic.Uint64
	checks *prometheus.GaugeVec   // by subject and verdict
	proofs *prometheus.CounterVec // by result
	last   prometheus.Gauge
	took   prometheus.Gauge
}

// NewMetrics returns metrics without samples.
func NewMetrics() *Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return &Metrics{
		checks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "contiv_verify_checks",
			Help: "Checks of the last proof about VPP, by subject (pods, services) and verdict (equal, different, not compared).",
		}, []string{"subject", "verdict"}),
		proofs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "contiv_verify_proofs_total",
			Help: "Proofs about VPP, by result: equal, different, not compared, failed (VPP could not be read).",
		}, []string{"result"}),
		last: gauge("contiv_verify_last_proof_timestamp_seconds", "Time at which the last proof with checks began."),
		took: gauge("contiv_verify_last_proof_duration_seconds", "Time that the last proof with checks took, with its repetitions."),
	}
}

// Register registers all metrics.
func (m *Metrics) Register(r prometheus.Registerer) error {
	return errors.Join(r.Register(m.checks), r.Register(m.proofs), r.Register(m.last), r.Register(m.took))
}

// Observe returns a function that counts an answered request of the agent to VPP, and passes it on.
func (m *Metrics) Observe(next func(string, time.Duration, error)) func(string, time.Duration, error) {
	return func(message string, took time.Duration, err error) {
		if !reads(message) {
			m.writes.Add(1)
		}
		next(message, took, err)
	}
}

// Writes is how many requests may have changed VPP.
func (m *Metrics) Writes() uint64 { return m.writes.Load() }

// reads reports that a request changes nothing in VPP. For an unknown one it is false.
func reads(message string) bool {
	for _, end := range []string{"_dump", "_get", "_lookup", "_is_enabled", "_table_ids", "_table_info"} {
		if strings.HasSuffix(message, end) {
			return true
		}
	}
	for _, begin := range []string{"control_ping", "show_", "nat44_show_", "want_", "sw_interface_get_", "cnat_get_", "cli_inband"} {
		if strings.HasPrefix(message, begin) {
			return true
		}
	}
	return false
}

// countFailure counts a proof that could not read VPP.
func (m *Metrics) countFailure() { m.proofs.WithLabelValues("failed").Inc() }

// countProof records a proof.
func (m *Metrics) countProof(s *Summary, r *verify.Report) {
	m.proofs.WithLabelValues(string(s.Verdict)).Inc()
	if r.Why != "" {
		return
	}
	for _, v := range []verify.Verdict{verify.Equal, verify.Different, verify.Unknown} {
		pods, services := 0, 0
		for i := range r.Checks {
			if r.Checks[i].Verdict == v {
				pods++
			}
		}
		for i := range r.Services {
			if r.Services[i].Verdict == v {
				services++
			}
		}
		m.checks.WithLabelValues("pods", string(v)).Set(float64(pods))
		m.checks.WithLabelValues("services", string(v)).Set(float64(services))
	}
	m.last.Set(float64(s.At.UnixMilli()) / 1000)
	m.took.Set(s.Took.Seconds())
}
