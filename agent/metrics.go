package agent

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/kubeproxy"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/event"
)

// metrics are the metrics of one agent.
type metrics struct {
	proxy       *kubeproxy.Metrics // metrics with kube-proxy's names
	refused     prometheus.Counter
	txns        *prometheus.CounterVec // by kind, result
	values      *prometheus.CounterVec // by operation
	writes      prometheus.Counter
	unwell      *prometheus.GaugeVec // by state
	connected   prometheus.Gauge
	connections prometheus.Gauge
	silent      *silenceMetrics
	requests    *prometheus.CounterVec   // by message, result
	latency     *prometheus.HistogramVec // by message
	nat         *nattable.Metrics
	drift       *prometheus.CounterVec // by kind of value, result

	policies        prometheus.Gauge
	policyEndpoints prometheus.Gauge
	reclassify      prometheus.Gauge
}

// newMetrics returns the metrics of an agent that serves these families of addresses.
func newMetrics(families []string) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		drift:       counters("contiv_drift_total", "Values that another program changed in VPP, by kind and result (repaired, not repaired).", "kind", "result"),
		proxy:       kubeproxy.NewMetrics(families),
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
			Name: "contiv_vpp_api_request_duration_seconds", Help: "Time from sending a binary-API request to its last reply, by message.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 4, 9),
		}, []string{"message"}),
		nat: nattable.NewMetrics(),

		policies:        gauge("contiv_policies", "Policies in force on this node."),
		policyEndpoints: gauge("contiv_policy_endpoints", "Local pods and host endpoints that policies may apply to."),
		reclassify:      gauge("contiv_vpp_acl_reclassify", "1: VPP judges flows that exist again when policies change; 0: it does not; -1: it did not say."),
	}
}

// register registers all metrics; a second agent with the same registry is an error.
func (m *metrics) register(r prometheus.Registerer) error {
	errs := []error{m.proxy.Register(r), m.silent.register(r), m.nat.Register(r)}
	for _, c := range []prometheus.Collector{
		m.refused, m.txns, m.values, m.writes, m.unwell, m.connected, m.connections,
		m.requests, m.latency, m.drift, m.policies, m.policyEndpoints, m.reclassify,
	} {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// committed counts a transaction that ended at now.
func (m *metrics) committed(ev *event.Committed, now time.Time) {
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
	if ev.Err == nil {
		m.proxy.Committed(ev, now)
	}
}

// request counts one binary-API request.
func (m *metrics) request(message string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.requests.WithLabelValues(message, result).Inc()
	m.latency.WithLabelValues(message).Observe(took.Seconds())
}
