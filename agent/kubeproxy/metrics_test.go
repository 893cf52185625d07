package kubeproxy

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/renderer/adapter"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/test/samples"
)

// TestProxyMetricsAreKubeProxys compares with the names, labels and buckets of kube-proxy v1.36
// (pkg/proxy/metrics/metrics.go). programmingBuckets has the expressions of its buckets; these are the numbers.
func TestProxyMetricsAreKubeProxys(t *testing.T) {
	m := NewMetrics([]string{familyIPv4})
	r := prometheus.NewRegistry()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	m.Changed(model.Ref{Kind: model.KindService, Name: "a"}, now)
	m.Committed(&event.Committed{Triggered: []time.Time{now}}, now)
	m.Committed(&event.Committed{Resync: event.Full}, now)
	m.Dropping()
	got := samples.Read(t, r)
	want := map[string]float64{
		`kubeproxy_sync_proxy_rules_duration_seconds{ip_family="IPv4"}`:                                   2,
		`kubeproxy_sync_full_proxy_rules_duration_seconds{ip_family="IPv4"}`:                              1,
		`kubeproxy_sync_partial_proxy_rules_duration_seconds{ip_family="IPv4"}`:                           1,
		`kubeproxy_network_programming_duration_seconds{ip_family="IPv4"}`:                                1,
		`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}`:                             1000,
		`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"}`:                      1000,
		`kubeproxy_sync_proxy_rules_service_changes_total{}`:                                              1,
		`kubeproxy_sync_proxy_rules_service_changes_pending{}`:                                            1,
		`kubeproxy_sync_proxy_rules_endpoint_changes_total{}`:                                             0,
		`kubeproxy_sync_proxy_rules_endpoint_changes_pending{}`:                                           0,
		`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"}`: 0,
		`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="external"}`: 0,
		`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv6",traffic_policy="internal"}`: 0,
		`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv6",traffic_policy="external"}`: 0,
		`kubeproxy_proxy_healthz_total{code="200"}`:                                                       0,
		`kubeproxy_proxy_healthz_total{code="503"}`:                                                       0,
		`kubeproxy_proxy_livez_total{code="200"}`:                                                         0,
		`kubeproxy_proxy_livez_total{code="503"}`:                                                         0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	took := []float64{0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384}
	latency := []float64{0.25, 0.5}
	for s := 1.0; s < 60; s++ {
		latency = append(latency, s)
	}
	for s := 60.0; s < 120; s += 5 {
		latency = append(latency, s)
	}
	for s := 120.0; s <= 300; s += 30 {
		latency = append(latency, s)
	}
	families, _ := r.Gather() // it succeeded a moment ago
	for _, f := range families {
		for _, metric := range f.Metric {
			if metric.Histogram == nil {
				continue
			}
			var bounds []float64
			for _, b := range metric.Histogram.Bucket {
				bounds = append(bounds, b.GetUpperBound())
			}
			want := took
			if f.GetName() == "kubeproxy_network_programming_duration_seconds" {
				want = latency
			}
			if !slices.Equal(bounds, want) {
				t.Errorf("%s: buckets %v, want %v", f.GetName(), bounds, want)
			}
		}
	}
}

// TestPageNamesTheseMetrics: the operations page lists exactly these metrics.
func TestPageNamesTheseMetrics(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Metrics")
	table, _, _ = strings.Cut(table, "\n## ")
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `[^|]*\\|").FindAllString(table, -1) {
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row, -1) {
			got = append(got, "kubeproxy_"+name[1])
		}
	}
	have := samples.Names{}
	if err := NewMetrics(nil).Register(have); err != nil {
		t.Fatal(err)
	}
	for name := range have {
		want = append(want, name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-exported +on the page\n%s", diff)
	}
}

// TestPendingChanges: an object counts once until a transaction contains its change, however often it changes.
func TestPendingChanges(t *testing.T) {
	m := NewMetrics(nil)
	r := prometheus.NewRegistry()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	is := func(when string, want ...float64) {
		t.Helper()
		var got []float64
		for _, name := range []string{"service_changes_total", "service_changes_pending", "endpoint_changes_total", "endpoint_changes_pending"} {
			got = append(got, samples.Read(t, r)["kubeproxy_sync_proxy_rules_"+name+"{}"])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	for _, name := range []string{"a", "b", "a"} {
		m.Changed(model.Ref{Kind: model.KindService, Name: name}, time.Time{})
	}
	m.Changed(model.Ref{Kind: model.KindEndpointSlice, Name: "a"}, time.Time{})
	m.Changed(model.Ref{Kind: model.KindPod, Name: "a"}, time.Time{})
	is("changed", 3, 2, 1, 1)
	m.Sent()
	is("sent", 3, 0, 1, 0)
	m.Changed(model.Ref{Kind: model.KindService, Name: "a"}, time.Time{})
	is("again", 4, 1, 1, 0)
}

// TestChangesThatNeedNothing: a change without a request to VPP is done when the loop has processed it, if VPP has all
// others.
func TestChangesThatNeedNothing(t *testing.T) {
	m := NewMetrics([]string{familyIPv4})
	r := prometheus.NewRegistry()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	synced := func() float64 {
		return samples.Read(t, r)[`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}`]
	}
	m.Idle(true, time.Unix(1, 0))
	m.Changed(model.Ref{Kind: model.KindEndpointSlice, Name: "a"}, time.Unix(2, 0))
	m.Idle(false, time.Unix(3, 0))
	if got := synced(); got != 0 {
		t.Errorf("VPP lacks something: %v", got)
	}
	m.Idle(true, time.Unix(4, 0))
	m.Idle(true, time.Unix(5, 0))
	if got := synced(); got != 4 {
		t.Errorf("synced at %v, want 4", got)
	}
}

func TestDropping(t *testing.T) {
	endpoint := func(ip string, local bool) *renderer.ServiceBackend {
		return &renderer.ServiceBackend{IP: net.ParseIP(ip), Port: 80, Local: local}
	}
	svc := func(name string, internal, external renderer.TrafficPolicyType, backends ...*renderer.ServiceBackend) *renderer.ContivService {
		s := renderer.NewContivService()
		s.ID = model.ServiceID{Namespace: "default", Name: name}
		s.ClusterIPs.Add(net.ParseIP("10.96.0.1"))
		s.ClusterIPs.Add(net.ParseIP("fd00:96::1"))
		s.InternalTrafficPolicy, s.TrafficPolicy = internal, external
		for _, port := range []string{"http", "https"} {
			s.Ports[port], s.Backends[port] = &renderer.ServicePort{Port: 80}, backends
		}
		return s
	}
	const all, here = renderer.ClusterWide, renderer.NodeLocal
	m := NewMetrics(nil)
	r := prometheus.NewRegistry()
	r.MustRegister(m.noLocal)
	d := m.Dropping()
	is := func(when string, want ...float64) {
		t.Helper()
		var got []float64
		for _, policy := range []string{"internal", "external"} {
			for _, family := range []string{familyIPv4, familyIPv6} {
				got = append(got, samples.Read(t, r)[fmt.Sprintf("kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=%q,traffic_policy=%q}", family, policy)])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	api := adapter.Listen(d)
	is("at first", 0, 0, 0, 0)
	_ = api.AddService(svc("everywhere", all, all, endpoint("10.1.2.2", false)))
	_ = api.AddService(svc("no endpoint", here, here))
	_ = api.AddService(svc("one here", here, here, endpoint("10.1.1.2", true), endpoint("10.1.2.2", false)))
	is("none to count", 0, 0, 0, 0)
	_ = api.AddService(svc("a", here, all, endpoint("10.1.2.2", false)))
	_ = api.AddService(svc("b", here, here, endpoint("10.1.2.2", false), endpoint("fd00:1::2", false), endpoint("10.1.1.2", true)))
	is("two", 2, 2, 0, 2)
	_ = api.UpdateService(nil, svc("b", all, here, endpoint("fd00:1::2", false)), nil)
	is("changed", 2, 0, 0, 2)
	_ = api.DeleteService(svc("a", here, all), nil)
	is("one gone", 0, 0, 0, 2)
	one := svc("c", here, all, endpoint("fd00:1::2", false))
	one.ClusterIPs = renderer.NewIPAddresses(net.ParseIP("10.96.0.1"))
	_ = api.Resync(&renderer.ResyncEventData{Services: []*renderer.ContivService{one, svc("d", here, here, endpoint("10.1.2.2", false))}})
	is("resync", 2, 0, 2, 0)
}
