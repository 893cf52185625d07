package status

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
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
		stated(t, st.Reasons, st.Causes)
		if got := strings.TrimSpace(st.State + " " + strings.Join(st.Reasons, "; ")); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if st := drivenStatus(policy.Status{Policy: applied.Policy}, &felix.SupervisorStatus{}); st.State != Idle {
		t.Errorf("a policy that applies to nothing is %s", st.State)
	}
}

// Without its driver an agent is not healthy, and reports the reason.
func TestAgentWithoutItsDriver(t *testing.T) {
	p := &Reader{Beside: Beside{Driver: felix.NewSupervisor(felix.SupervisorConfig{Path: "/opt/driver"})}}
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
	if (&Reader{}).driverStatus(st); !st.InSync || !st.Ready || st.Driver != nil {
		t.Errorf("an agent that enforces policies itself: %+v", st)
	}
}

// Two agents on one VPP have no common kind of values that either would remove.

// A host endpoint that is not enforced is reported.
func TestPoliciesOfHostEndpoints(t *testing.T) {
	edge := policy.Status{
		Policy:    &model.Policy{ID: model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "edge"}, Tier: "default", Egress: true},
		Endpoints: []policy.Applied{{Endpoint: "up", Host: true}},
	}
	up := model.Ref{Kind: model.KindHostEndpoint, Name: "up"}
	notes := map[model.Ref][]model.Note{}
	want := Policy{Object: "GlobalNetworkPolicy edge", Tier: "default", State: "CONFIGURED", Text: "tier default, egress 0 rules, of up"}
	check := func(what string) {
		t.Helper()
		got := policyStatus(edge, nil, notes)
		stated(t, got.Reasons, got.Causes)
		got.Causes = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("enforced")
	edge.Endpoints[0].Interfaces = []string{"uplink", "host"}
	unwellKeys := map[string]event.ValueStatus{kv.Key(&contivacl.InterfaceACLs{Interface: "host"}): {State: event.Failed}}
	if got := policyStatus(edge, unwellKeys, notes); got.State != event.Failed.String() || len(got.Reasons) != 1 || got.Causes[0].Value == nil || got.Causes[0].Endpoint != "up" {
		t.Errorf("with a list that VPP refused: %+v", got)
	}
	notes[up] = []model.Note{{Ref: up, Reason: "something is missing", Refused: true}}
	want.Reasons = []string{"HostEndpoint up: something is missing"}
	check("enforced in part")
	notes[up][0].Reason = acl.HostNotEnforced
	want.State, want.Reasons = "REFUSED", []string{"HostEndpoint up: " + acl.HostNotEnforced}
	check("of a host endpoint that is nowhere")
	edge.Endpoints = append(edge.Endpoints, policy.Applied{Endpoint: "default/web", Interfaces: []string{"tap1"}}, policy.Applied{Endpoint: "default/x"})
	want.State, want.Text = "PENDING", "tier default, egress 0 rules, of up, default/web, default/x"
	want.Reasons = append(want.Reasons, "default/x: no interface of VPP leads to it")
	check("of pods, too")
	notes[up][0].Reason = "untracked policies are not enforced"
	edge.Endpoints, edge.Policy.Untracked = edge.Endpoints[:1], true
	want.State, want.Text, want.Reasons = "REFUSED", "tier default, egress 0 rules, of up", []string{"HostEndpoint up: untracked policies are not enforced"}
	check("untracked")
}

// The renderer's remarks on Felix's names become remarks on the objects.
func TestNotesNameObjects(t *testing.T) {
	p := &Reader{Loop: Loop{Policies: policy.New(policy.Config{NodeName: "node-1"}, acl.New(acl.Config{}, controller.NewValues()))}}
	for _, o := range []model.Object{
		&model.Pod{ID: model.PodID{Namespace: "default", Name: "web"}, NodeName: "node-1", IPs: []netip.Addr{netip.MustParseAddr("10.1.1.2")}},
		&model.Policy{ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "np"}, Tier: "default", Namespace: "default"},
	} {
		p.Policies.Apply(event.Change{Ref: o.Ref(), Object: o})
	}
	if err := p.Policies.Flush(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range p.Named([]model.Note{
		{Ref: model.Ref{Kind: acl.KindPolicy, Name: "default|default/knp.default.np"}, Reason: "a"},
		{Ref: model.Ref{Kind: acl.KindProfile, Name: "kns.default"}, Reason: "b"},
		{Ref: model.Ref{Kind: acl.KindWorkload, Name: "default/web"}, Reason: "c"},
		{Ref: model.Ref{Kind: model.KindService, Name: "s"}, Reason: "d"},
	}) {
		got = append(got, n.Ref.String()+" "+n.Reason)
	}
	want := []string{"NetworkPolicy default/np a", "Namespace default b", "Pod default/web c", "Service s d"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}
