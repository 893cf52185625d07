package agent

import (
	"context"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// A running agent returns the differences between VPP and the desired state, and changes nothing.
func TestPlanOfARunningAgent(t *testing.T) {
	w := start(t, nil)
	w.wait("first sync", firstSync)
	w.settled()
	socket := w.agent.cfg.Listen.Status
	plan, err := control.FetchPlan(t.Context(), socket, false)
	if err != nil || !plan.Empty() || plan.Sessions != nil {
		t.Fatalf("VPP is as it is wanted: %v, %v", plan, err)
	}
	other, err := NewStepper(t.Context(), Config{NodeName: "node-1", VPP: vpp.Config{Dial: w.vpp.Dial}, Override: cni.Located(), Sources: map[string]Source{manifest.Name: Fed{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Feed(t.Context(), &event.Update{Source: manifest.Name}, &event.SyncStatus{Source: manifest.Name, Status: event.InSync}); err != nil {
		t.Fatal(err) // this agent has no desired state
	}
	writes := w.vpp.Writes()
	plan, err = control.FetchPlan(t.Context(), socket, true)
	if err != nil || !strings.Contains(plan.String(), "create config/vpp/nat/v2/dnat44/identities\n") || plan.Sessions == nil {
		t.Errorf("after another program removed it: %v, %v", plan, err)
	}
	if n := w.vpp.Writes(); n != writes {
		t.Errorf("%d writes", n-writes)
	}
	_ = w.stop()
	if _, err := control.FetchPlan(context.Background(), socket, false); err == nil || !strings.Contains(err.Error(), "no agent answers") {
		t.Errorf("asked when it was gone: %v", err)
	}
}
