package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/sim"
)

const policies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec:
  podSelector: {}
  ingress: [{from: [{ipBlock: {cidr: 10.2.0.0/16}}], ports: [{port: 80}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: elsewhere, namespace: other}
spec: {podSelector: {}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: odd, namespace: default}
spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: nonsense}}]}]}
`

var web = model.PodID{Namespace: "default", Name: "web"}

func TestPoliciesAreEnforcedAndShown(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := start(t, func(c *Config) { c.Process.Registry = registry })
	w.wait("first sync", firstSync)
	w.settled()
	w.write("policies.yaml", policies)
	w.wait("policies", func(c *event.Committed) bool { return strings.Contains(c.Cause, "networkpolicy/") })
	w.settled()
	if dump := w.vpp.Dump(); !strings.Contains(dump, "acl") {
		t.Errorf("no access list in VPP:\n%s", dump)
	}
	st, err := control.FetchStatus(t.Context(), w.agent.cfg.Listen.Status, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range st.Policies { // other tests check the source's texts
		for j, r := range st.Policies[i].Reasons {
			st.Policies[i].Reasons[j], _, _ = strings.Cut(r, ": ")
		}
	}
	want := []status.Policy{
		{
			Object: "NetworkPolicy default/odd", Tier: "default", State: "PARTIAL", Reasons: []string{"what was not understood fails closed"}, Causes: []status.Cause{{Of: "refused", Refused: true}},
			Text: "tier default, ingress 0 rules, of default/web", Kind: "NetworkPolicy", Namespace: "default", Name: "odd", Endpoints: []string{"default/web"},
		},
		{
			Object: "NetworkPolicy default/web", Tier: "default", State: "CONFIGURED", Text: "tier default, ingress 1 rule, of default/web",
			Kind: "NetworkPolicy", Namespace: "default", Name: "web", Endpoints: []string{"default/web"},
		},
		{
			Object: "NetworkPolicy other/elsewhere", Tier: "default", State: "IDLE", Text: "tier default, ingress 0 rules",
			Kind: "NetworkPolicy", Namespace: "other", Name: "elsewhere",
		},
	}
	if diff := cmp.Diff(want, st.Policies); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
	checkGauges(t, registry, map[string]float64{"contiv_policies": 2, "contiv_policy_endpoints": 1, "contiv_vpp_acl_reclassify": 1})
	if st.VPP.Reclassify != "on" {
		t.Errorf("reclassify %s", st.VPP.Reclassify)
	}
}

// The status names a VPP that keeps flows which policies deny, with the remedy.
func TestVPPThatDoesNotReclassify(t *testing.T) {
	registry, forgetful := prometheus.NewRegistry(), sim.New(sim.Config{PuntLocal: true, NoReclassify: true})
	t.Cleanup(forgetful.Close)
	w := start(t, func(c *Config) { c.Process.Registry, c.VPP.Dial = registry, forgetful.Dial })
	w.wait("first sync", firstSync)
	st, err := w.agent.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, n := range st.Notes {
		found = found || n.Object == "Node node-1" && strings.Contains(n.Reason, "does not judge established flows again")
	}
	if !found || st.VPP.Reclassify != "off" {
		t.Errorf("reclassify %s, notes %v", st.VPP.Reclassify, st.Notes)
	}
	checkGauges(t, registry, map[string]float64{"contiv_vpp_acl_reclassify": 0})
}

func checkGauges(t *testing.T, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if _, asked := want[f.GetName()]; asked {
			got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestPolicyOfAPod(t *testing.T) {
	w := start(t, nil, policies)
	w.wait("first sync", firstSync)
	w.settled()
	d, err := control.FetchPolicy(t.Context(), w.agent.cfg.Listen.Status, web)
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.Tier{{Name: "default", End: "deny", Policies: []policy.Policy{
		{Object: "NetworkPolicy default/odd"},
		{Object: "NetworkPolicy default/web", Rules: []policy.Rule{{Name: "ingress rule 1", Action: "allow", Match: "tcp from 10.2.0.0/16 to ports 80"}}},
	}}}
	words := false
	for i := range d.Ingress {
		for j := range d.Ingress[i].Policies {
			p := &d.Ingress[i].Policies[j]
			if p.Selector == "" {
				t.Errorf("%s has no selector", p.Object)
			}
			if p.Selector = ""; len(p.Rules) == 0 {
				p.Rules = nil
			}
			for k := range p.Rules { // plugins/policy tests both
				words = words || p.Rules[k].Words != "" && p.Rules[k].Matches != nil
				p.Rules[k].Words, p.Rules[k].Matches = "", nil
			}
		}
	}
	if !words {
		t.Error("the rule has no words, or no fields")
	}
	if diff := cmp.Diff(want, d.Ingress); diff != "" || len(d.Egress) != 0 {
		t.Errorf("egress %v, ingress (-want +got):\n%s", d.Egress, diff)
	}
	if _, err := control.FetchPolicy(t.Context(), w.agent.cfg.Listen.Status, model.PodID{Namespace: "default", Name: "x"}); err == nil ||
		!strings.Contains(err.Error(), "pod default/x has no endpoint on this node") {
		t.Errorf("a pod that is not there: %v", err)
	}
}

// The agent adopts the lists of an earlier run: a second start writes nothing.
func TestSecondStartKeepsPolicies(t *testing.T) {
	w := start(t, nil, policies)
	w.wait("first sync", firstSync)
	w.startsAgain()
}
