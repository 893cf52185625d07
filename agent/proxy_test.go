package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/kubeproxy"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/poll"
	"github.com/contiv-agent/contiv-agent/test/port"
	"github.com/contiv-agent/contiv-agent/test/samples"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// healthz gets /healthz at an address; the code is 0 without an answer.
func healthz(at string) (code int, b kubeproxy.Answer) {
	code = poll.Get("http://"+at+"/healthz", &b)
	return code, b
}

// TestHealthzOfAnAgent: the answer follows the agent's Node.
func TestHealthzOfAnAgent(t *testing.T) {
	at := port.Address(t)
	w := start(t, func(cfg *Config) { cfg.Listen.Healthz = at })
	poll.Until(t, "an answer", func() bool {
		code, b := healthz(at)
		return code == http.StatusOK && b.NodeEligible != nil && *b.NodeEligible && len(b.Status) == 2
	})
	w.write("objects.yaml", strings.Replace(objects, "podCIDR: 10.1.1.0/24,", "taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}], podCIDR: 10.1.1.0/24,", 1))
	poll.Until(t, "the node being let go", func() bool {
		code, b := healthz(at)
		return code == http.StatusServiceUnavailable && b.NodeEligible != nil && !*b.NodeEligible && b.Healthy
	})
	if err := w.stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestHealthzAddressIsChecked(t *testing.T) {
	v := sim.New(sim.Config{})
	defer v.Close()
	for _, bad := range []string{"10256", "0.0.0.0:", "a:b:c"} {
		_, err := New(Config{NodeName: "node-1", VPP: vpp.Config{Dial: v.Dial}, Override: cni.Located(), Listen: config.Listeners{Healthz: bad}, Process: config.Process{Registry: prometheus.NewRegistry()}})
		if err == nil || !strings.Contains(err.Error(), "healthz bind address") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestEveryTriggerIsMeasured: two EndpointSlices that change in one transaction count as two changes, as in kube-proxy.
func TestEveryTriggerIsMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := start(t, func(c *Config) { c.Process.Registry, c.Services.Renderer.Choice = registry, RendererNAT44 })
	w.wait("first sync", firstSync)
	w.settled()
	slice := strings.Replace(endpoints, "metadata: {", "metadata: {annotations: {endpoints.kubernetes.io/last-change-trigger-time: \"2026-01-01T00:00:00Z\"}, ", 1)
	w.write("slices.yaml", slice+"---"+strings.Replace(slice, "web-1", "web-2", 1))
	w.wait("endpoints", func(c *event.Committed) bool { return strings.Contains(c.Cause, "endpointslice") })
	w.settled()
	got := samples.Read(t, registry)
	if n := got[`kubeproxy_network_programming_duration_seconds{ip_family="IPv4"}`]; n != 2 {
		t.Errorf("%v measurements, want 2", n)
	}
	if n := got["kubeproxy_sync_proxy_rules_endpoint_changes_total{}"]; n != 2 {
		t.Errorf("%v changes of endpoints, want 2", n)
	}
	if n := got["kubeproxy_sync_proxy_rules_service_changes_pending{}"]; n != 0 {
		t.Errorf("%v Services pending", n)
	}
	if got[`kubeproxy_sync_full_proxy_rules_duration_seconds{ip_family="IPv4"}`] == 0 || got[`kubeproxy_sync_partial_proxy_rules_duration_seconds{ip_family="IPv4"}`] == 0 {
		t.Error("no full, or no partial, transaction was measured")
	}
	if got[`kubeproxy_sync_full_proxy_rules_duration_seconds{ip_family="IPv6"}`] != 0 {
		t.Error("IPv6 was measured, which nat44 does not serve")
	}
}
