package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/live"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp/tracer"
)

// The socket answers a question about a real packet: the pod and the destination are found, and the simulated VPP has no tracer.
func TestTraceOverTheSocket(t *testing.T) {
	w := watchFlows(t, "live", otherPods)
	for _, c := range []struct{ pod, to, want string }{
		{"web", "10.3.0.1:53", tracer.ErrAbsent.Error()},
		{"far", "10.3.0.1:53", `on node "node-2"`},
		{"web", "default/none:53", "neither a Service nor a pod"},
	} {
		q := live.Question{From: model.PodID{Namespace: "default", Name: c.pod}, To: c.to, Protocol: "TCP", Time: time.Second}
		if _, err := control.FetchTrace(t.Context(), w.agent.cfg.Listen.Status, q); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: %v", c.pod, c.to, err)
		}
	}
	q := live.Question{From: model.PodID{Namespace: "default", Name: "web"}, To: "10.3.0.1:53", Protocol: "TCP", Time: time.Second, Inject: true}
	if _, err := control.FetchTrace(t.Context(), w.agent.cfg.Listen.Status, q); err == nil || !strings.Contains(err.Error(), "run --cni") {
		t.Errorf("an agent without pods' namespaces: %v", err)
	}
}
