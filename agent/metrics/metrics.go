// Package metrics counts an agent's transactions, values, requests to VPP and policies.
//
// Invariant: every transaction and every request counts once, with its result.
package metrics

import (
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// Metrics are the metrics of one agent.
type Metrics struct {
	refused     prometheus.Counter
	txns        *prometheus.CounterVec // by kind, result
	values      *prometheus.CounterVec // by operation
	writes      prometheus.Counter
	unwell      *prometheus.GaugeVec // by state
	connected   prometheus.Gauge
	connections prometheus.Gauge
	silent      *silenceMetrics
	requests    *prometheus.CounterVec   // by message, result
	latency     *prometheus.HistogramVec // by kind
	spent       *prometheus.CounterVec   // by message
	drift       *prometheus.CounterVec   // by kind of value, result

	policies        prometheus.Gauge
	policyEndpoints prometheus.Gauge
	reclassify      prometheus.Gauge
}

// New returns metrics without samples.
func New() *Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Metrics{
		drift:       counters("contiv_drift_total", "Values that another program changed in VPP, by kind and result (repaired, not repaired).", "kind", "result"),
		refused:     counter("contiv_objects_refused_total", "Kubernetes objects kept out because they do not parse or validate."),
		txns:        counters("contiv_transactions_total", "Transactions, by kind (update, full-resync, …) and result (ok, failed).", "kind", "result"),
		values:      counters("contiv_values_total", "Values changed in VPP, by operation (add, mod, del).", "operation"),
		writes:      counter("contiv_vpp_writes_total", "Binary-API messages sent that change VPP."),
		unwell:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "contiv_values_unwell", Help: "Desired values that are not configured, by state."}, []string{"state"}),
		connected:   gauge("contiv_vpp_connected", "1 while the binary-API connection to VPP is up."),
		connections: gauge("contiv_vpp_connection_generation", "Which connection to VPP this is, counted from 1."),
		silent:      newSilenceMetrics(),
		requests:    counters("contiv_vpp_api_requests_total", "Binary-API requests, by message and result (ok, failed).", "message", "result"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "contiv_vpp_api_request_duration_seconds", Help: "Time from sending a binary-API request to its last reply, by kind (read, write).",
			Buckets: prometheus.ExponentialBuckets(0.00005, 4, 9),
		}, []string{"kind"}),
		spent: counters("contiv_vpp_api_request_seconds_total", "Time from sending binary-API requests to their last replies, added up, by message.", "message"),

		policies:        gauge("contiv_policies", "Policies in force on this node."),
		policyEndpoints: gauge("contiv_policy_endpoints", "Local pods and host endpoints that policies may apply to."),
		reclassify:      gauge("contiv_vpp_acl_reclassify", "1: VPP judges flows that exist again when policies change; 0: it does not; -1: it did not say."),
	}
}

// Register registers all metrics; a second agent with the same registry is an error.
func (m *Metrics) Register(r prometheus.Registerer) error {
	errs := []error{m.silent.registerSilence(r)}
	for _, c := range []prometheus.Collector{
		m.refused, m.txns, m.values, m.writes, m.unwell, m.connected, m.connections,
		m.requests, m.latency, m.spent, m.drift, m.policies, m.policyEndpoints, m.reclassify,
	} {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// Committed counts a transaction that ended.
func (m *Metrics) Committed(ev *event.Committed) {
	result := "ok"
	if ev.Err != nil {
		result = "failed"
	}
	m.txns.WithLabelValues(ev.Resync.String(), result).Inc()
	m.values.WithLabelValues("add").Add(float64(ev.Add))
	m.values.WithLabelValues("mod").Add(float64(ev.Mod))
	m.values.WithLabelValues("del").Add(float64(ev.Del))
	m.writes.Add(float64(ev.Writes))
	for _, d := range ev.Drift {
		outcome := "repaired"
		if !d.Repaired {
			outcome = "not repaired"
		}
		m.drift.WithLabelValues(d.Kind, outcome).Inc()
	}
}

// Request counts one binary-API request.
func (m *Metrics) Request(message string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.requests.WithLabelValues(message, result).Inc()
	m.spent.WithLabelValues(message).Add(took.Seconds())
	m.latency.WithLabelValues(kindOf(message)).Observe(took.Seconds())
}

// kindOf is "read" for requests that change nothing in VPP, else "write". A histogram for each message would be two series in three of an agent's.
// It is called for each request: a regular expression took as long as everything else that an idle agent does for a request.
func kindOf(message string) string {
	for _, end := range []string{"_dump", "_get"} {
		if strings.HasSuffix(message, end) {
			return "read"
		}
	}
	for _, start := range []string{"get_", "show_", "want_"} {
		if strings.HasPrefix(message, start) {
			return "read"
		}
	}
	if message == "cli_inband" || message == "control_ping" || strings.Contains(message, "_get_") {
		return "read"
	}
	return "write"
}

// Refused counts an object that does not parse or validate.
func (m *Metrics) Refused() { m.refused.Inc() }

// State records the state of the connection to VPP.
func (m *Metrics) State(st vpp.State) {
	m.connections.Set(float64(st.Generation))
	m.connected.Set(0)
	m.silent.setSilence(st.Silent)
	if st.Connected {
		m.connected.Set(1)
	}
}

// Unwell records how many desired values are in each state other than configured.
func (m *Metrics) Unwell(states map[event.State]int) {
	m.unwell.Reset()
	for state, n := range states {
		m.unwell.WithLabelValues(state.String()).Set(float64(n))
	}
}

// Policies records the policies in force, and whether VPP evaluates established flows again.
func (m *Metrics) Policies(n policy.Counts, reclassify vppagent.Reclassify) {
	m.policies.Set(float64(n.Policies))
	m.policyEndpoints.Set(float64(n.Endpoints))
	switch reclassify {
	case vppagent.ReclassifyOn:
		m.reclassify.Set(1)
	case vppagent.ReclassifyOff:
		m.reclassify.Set(0)
	default:
		m.reclassify.Set(-1)
	}
}
