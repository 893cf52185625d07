package limit

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// A policy of a stream is closed while the sets that it refers to are too large. Its closed form keeps what selects endpoints.
func TestPassClosesPolicyWithLargeSets(t *testing.T) {
	g := New(budget.Limits{budget.Rules: {Object: 4}}, nil)
	name := model.WireName{Tier: "default", Name: "prod/knp.default.web"}
	policy := &felix.Policy{
		Namespace: "prod", OriginalSelector: "app == 'web'",
		InboundRules: []*felix.Rule{{Action: "allow", SrcIpSetIds: []string{"s"}}, {Action: "deny"}},
	}
	out := g.Pass([]*felix.ToDataplane{
		{Payload: &felix.ToDataplane_IpsetUpdate{IpsetUpdate: &felix.IPSetUpdate{Id: "s", Members: []string{"10.1.0.1/32"}}}},
		updateMessage(name, policy),
	})
	if len(out) != 2 || out[1].GetActivePolicyUpdate().GetPolicy() != policy || len(g.Notes()) != 0 {
		t.Errorf("a small policy: %v, notes %v", out, g.Notes())
	}
	delta := &felix.IPSetDeltaUpdate{Id: "s", AddedMembers: []string{"10.1.0.2/32", "10.1.0.3/32", "10.1.0.4/32", "10.1.0.5/32"}}
	out = g.Pass([]*felix.ToDataplane{{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: delta}}})
	ref := model.PolicyIDOf(name.Tier, name.Name).Ref()
	if len(out) != 2 || g.Refused(ref) == "" || len(g.Notes()) != 1 {
		t.Fatalf("a large set: %v, refused %q, notes %v", out, g.Refused(ref), g.Notes())
	}
	if p := out[1].GetActivePolicyUpdate().GetPolicy(); !IsClosed(p) || len(p.GetOutboundRules()) != 1 || p.GetOutboundRules()[0].GetAction() != "deny" || p.GetNamespace() != "prod" || p.GetOriginalSelector() != "app == 'web'" {
		t.Errorf("closed form: %v", p)
	}
	delta = &felix.IPSetDeltaUpdate{Id: "s", RemovedMembers: delta.AddedMembers}
	out = g.Pass([]*felix.ToDataplane{{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: delta}}})
	if len(out) != 2 || out[1].GetActivePolicyUpdate().GetPolicy() != policy || g.Refused(ref) != "" {
		t.Errorf("a small set again: %v, refused %q", out, g.Refused(ref))
	}
}
