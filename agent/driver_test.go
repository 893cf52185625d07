package agent

import (
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

func TestDrivenStatus(t *testing.T) {
	applied := policy.Status{
		Policy:    &model.Policy{ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "prod", Name: "p"}, Tier: "default"},
		Endpoints: []policy.Applied{{Endpoint: "prod/a"}, {Endpoint: "h", Host: true}},
	}
	a, h := felix.EndpointID{Orchestrator: "k8s", Workload: "prod/a", Endpoint: "eth0"}, felix.EndpointID{Endpoint: "h"}
	for _, c := range []struct {
		name   string
		driver felix.SupervisorStatus
		want   string
	}{
		{"up", felix.SupervisorStatus{InSync: true, Endpoints: map[felix.EndpointID]felix.Health{a: felix.Up, h: felix.Up}}, "CONFIGURED"},
		{
			"behind",
			felix.SupervisorStatus{InSync: true, Behind: 1, Endpoints: map[felix.EndpointID]felix.Health{a: felix.Up, h: felix.Up}},
			"PENDING the driver has not received everything",
		},
		{"one silent", felix.SupervisorStatus{InSync: true, Endpoints: map[felix.EndpointID]felix.Health{a: felix.Up}}, "PENDING h: the driver has not reported it"},
		{"one down", felix.SupervisorStatus{InSync: true, Endpoints: map[felix.EndpointID]felix.Health{a: felix.Down, h: felix.Up}}, `PENDING prod/a: the driver reports "down"`},
		{
			"one in error",
			felix.SupervisorStatus{InSync: true, Endpoints: map[felix.EndpointID]felix.Health{a: felix.Error, h: "odd"}},
			`FAILED prod/a: the driver reports an error; h: the driver reports "odd"`,
		},
	} {
		st := drivenStatus(applied, &c.driver)
		if got := strings.TrimSpace(st.State + " " + strings.Join(st.Reasons, "; ")); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if st := drivenStatus(policy.Status{Policy: applied.Policy}, &felix.SupervisorStatus{}); st.State != stateIdle {
		t.Errorf("a policy that applies to nothing is %s", st.State)
	}
}

// Without its driver an agent is not healthy, and reports the reason.
func TestAgentWithoutItsDriver(t *testing.T) {
	p := &parts{cfg: Config{Driver: felix.NewSupervisor(felix.SupervisorConfig{Path: "/opt/driver"})}}
	st := &Status{InSync: true, Ready: true}
	p.driverStatus(st)
	if st.InSync || st.Ready || st.Waiting != "the dataplane driver" || st.Driver == nil || st.Driver.Path != "/opt/driver" {
		t.Errorf("%+v", st)
	}
	st = &Status{Waiting: "source kube"}
	if p.driverStatus(st); st.Waiting != "source kube" {
		t.Errorf("it waits for %s", st.Waiting)
	}
	st = &Status{InSync: true, Ready: true}
	if (&parts{}).driverStatus(st); !st.InSync || !st.Ready || st.Driver != nil {
		t.Errorf("an agent that enforces policies itself: %+v", st)
	}
}

// Two agents on one VPP have no common kind of values that either would remove.
