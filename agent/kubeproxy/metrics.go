package kubeproxy

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// Families of addresses, as kube-proxy labels them.
const (
	familyIPv4 = "IPv4"
	familyIPv6 = "IPv6"
)

// Families returns the names of the families in which a service renderer serves Services.
func Families(served renderer.Families) []string {
	if served.IPv6 {
		return []string{familyIPv4, familyIPv6}
	}
	return []string{familyIPv4}
}

// Metrics are metrics with the names and buckets of kube-proxy v1.36 (pkg/proxy/metrics), for dashboards and load tests
// made for it. A metric with another meaning has a separate name: docs/operations.md lists both.
//
// A transaction is for all families together, and kube-proxy has one proxy per family: a transaction counts for each family.
type Metrics struct {
	families            []string
	sync, full, partial *prometheus.HistogramVec // by ip_family
	programming         *prometheus.HistogramVec // by ip_family
	synced, queued      *prometheus.GaugeVec     // by ip_family
	services, endpoints pendingMetrics
	owing               bool                   // a change since VPP last had the desired state
	noLocal             *prometheus.GaugeVec   // by traffic_policy, ip_family
	healthz, livez      *prometheus.CounterVec // by code
}

// pendingMetrics count changes of one kind of object: all changes, and the objects with changes that no transaction contains
// yet.
type pendingMetrics struct {
	total   prometheus.Counter
	pending prometheus.Gauge
	objects map[model.Ref]struct{}
}

// programmingBuckets are kube-proxy's for network programming latency, in seconds.
func programmingBuckets() []float64 {
	b := prometheus.LinearBuckets(0.25, 0.25, 2)
	b = append(b, prometheus.LinearBuckets(1, 1, 59)...)
	b = append(b, prometheus.LinearBuckets(60, 5, 12)...)
	return append(b, prometheus.LinearBuckets(120, 30, 7)...)
}

// NewMetrics returns the metrics of a proxy for these families: see Families.
func NewMetrics(families []string) *Metrics {
	const subsystem = "kubeproxy"
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}, []string{"ip_family"})
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	codes := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, []string{"code"})
	}
	pending := func(of, help string) pendingMetrics {
		name := "sync_proxy_rules_" + of + "_changes_"
		return pendingMetrics{
			total:   prometheus.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: name + "total", Help: "Changes of " + help + "."}),
			pending: prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: name + "pending", Help: help + " with changes that are in no transaction yet."}),
			objects: map[model.Ref]struct{}{},
		}
	}
	took := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &Metrics{
		families:    families,
		sync:        histogram("sync_proxy_rules_duration_seconds", "Time one transaction took, from handing it over to the last answer of VPP.", took),
		full:        histogram("sync_full_proxy_rules_duration_seconds", "The same, of those that compared all of VPP with what is wanted.", took),
		partial:     histogram("sync_partial_proxy_rules_duration_seconds", "The same, of those that had what changed.", took),
		programming: histogram("network_programming_duration_seconds", "Time from a change of endpoints (last-change-trigger-time of the EndpointSlice) to VPP having acknowledged it.", programmingBuckets()),
		synced:      gauge("sync_proxy_rules_last_timestamp_seconds", "When VPP last had all that was asked of it, or a transaction ended well.", "ip_family"),
		queued:      gauge("sync_proxy_rules_last_queued_timestamp_seconds", "When a change was last handed to the loop.", "ip_family"),
		services:    pending("service", "Services"),
		endpoints:   pending("endpoint", "EndpointSlices"),
		noLocal:     gauge("sync_proxy_rules_no_local_endpoints_total", "Ports of Services with policy Local and endpoints, but none on this node.", "traffic_policy", "ip_family"),
		healthz:     codes("proxy_healthz_total", "Answers to /healthz at --healthz-bind-address."),
		livez:       codes("proxy_livez_total", "Answers to /livez at --healthz-bind-address."),
	}
	m.initSeries()
	return m
}

// initSeries sets metrics without events to zero, so that they exist.
func (m *Metrics) initSeries() {
	for _, family := range m.families {
		for _, h := range []*prometheus.HistogramVec{m.sync, m.full, m.partial, m.programming} {
			h.WithLabelValues(family)
		}
	}
	for _, code := range []string{"200", "503"} {
		m.healthz.WithLabelValues(code)
		m.livez.WithLabelValues(code)
	}
}

// Register registers all metrics.
func (m *Metrics) Register(r prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{
		m.sync, m.full, m.partial, m.programming, m.synced, m.queued, m.services.total, m.services.pending, m.endpoints.total,
		m.endpoints.pending, m.noLocal, m.healthz, m.livez,
	} {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// Changed counts a change that entered the loop at now.
func (m *Metrics) Changed(ref model.Ref, now time.Time) {
	switch ref.Kind {
	case model.KindService:
		m.services.addObject(ref)
	case model.KindEndpointSlice:
		m.endpoints.addObject(ref)
	default:
		return
	}
	m.owing = true
	for _, family := range m.families {
		m.queued.WithLabelValues(family).Set(seconds(now))
	}
}

func (p *pendingMetrics) addObject(ref model.Ref) {
	p.total.Inc()
	p.objects[ref] = struct{}{}
	p.pending.Set(float64(len(p.objects)))
}

// Sent is called when transactions contain all changes, or the changes need none.
func (m *Metrics) Sent() {
	for _, p := range []*pendingMetrics{&m.services, &m.endpoints} {
		if len(p.objects) > 0 {
			p.objects = map[model.Ref]struct{}{} // a first sync has many: free their memory
			p.pending.Set(0)
		}
	}
}

// Idle is called when no request for VPP is left; well means that VPP has the desired state. A change that needs no
// transaction is then done as well; otherwise it would look stuck to a comparison of the two times.
func (m *Metrics) Idle(well bool, now time.Time) {
	m.Sent()
	if !well || !m.owing {
		return
	}
	m.owing = false
	for _, family := range m.families {
		m.synced.WithLabelValues(family).Set(seconds(now))
	}
}

// Committed counts a transaction that succeeded at now.
func (m *Metrics) Committed(ev *event.Committed, now time.Time) {
	kind := m.partial
	if ev.Resync != event.NoResync {
		kind = m.full
	}
	for _, family := range m.families {
		m.sync.WithLabelValues(family).Observe(ev.Took.Seconds())
		kind.WithLabelValues(family).Observe(ev.Took.Seconds())
		m.synced.WithLabelValues(family).Set(seconds(now))
		for _, trigger := range ev.Triggered {
			m.programming.WithLabelValues(family).Observe(max(0, now.Sub(trigger).Seconds()))
		}
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
