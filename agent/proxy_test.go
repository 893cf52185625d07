package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/kubeproxy"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/port"
	"github.com/contiv-agent/contiv-agent/test/samples"
)

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: ", what)
		}
	}
}

// healthz gets /healthz at an address; the code is 0 without an answer.
func healthz(at string) (code int, b kubeproxy.Answer) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + at + "/healthz")
	if err != nil {
		return 0, b
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		_ = json.Unmarshal(text, &b)
	}
	return resp.StatusCode, b
}

// unused returns an address without a listener.
func unused(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", port.Free(t))
}

// TestHealthzOfAnAgent: the answer follows the agent's Node.
func TestHealthzOfAnAgent(t *testing.T) {
	at := unused(t)
	w := start(t, func(cfg *Config) { cfg.Healthz = at })
	eventually(t, "an answer", func() bool {
		code, b := healthz(at)
		return code == http.StatusOK && b.NodeEligible != nil && *b.NodeEligible && len(b.Status) == 2
	})
	w.write("objects.yaml", strings.Replace(objects, "podCIDR: 10.1.1.0/24,", "taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}], podCIDR: 10.1.1.0/24,", 1))
	eventually(t, "the node being let go", func() bool {
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
		_, err := New(Config{NodeName: "node-1", Dial: v.Dial, Override: cni.Located(), Healthz: bad, Registry: prometheus.NewRegistry()})
		if err == nil || !strings.Contains(err.Error(), "healthz bind address") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestEveryTriggerIsMeasured: two EndpointSlices that change in one transaction count as two changes, as in kube-proxy.
func TestEveryTriggerIsMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := start(t, func(c *Config) { c.Registry, c.ServiceRenderer = registry, RendererNAT44 })
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
