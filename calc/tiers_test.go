package calc_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// ingressOf lists the ingress policies of a workload in the data plane.
func ingressOf(m *mirror.Mirror, id model.WorkloadID) (names []string) {
	u, _ := m.Things["WorkloadEndpoint "+idText(id)].(*felix.WorkloadEndpointUpdate)
	for _, t := range u.GetEndpoint().GetTiers() {
		for _, name := range t.IngressPolicies {
			names = append(names, t.Name+"/"+name)
		}
	}
	return names
}

// Endpoints with the same policies share one list. They get a new one when a policy changes its position or name, or
// when another policy gets its number.
func TestTiersAreShared(t *testing.T) {
	one := model.WorkloadID{Node: self, Workload: "one"}
	two := model.WorkloadID{Node: self, Workload: "two"}
	g, m := calc.New(calc.Config{Node: self}), mirror.New()
	set := func(name string, order float64, untracked bool) {
		p := gnp()
		p.ID.Name, p.Order, p.Untracked = name, model.OrderOf(order), untracked
		g.SetPolicy(p.ID, p)
	}
	gone := func(name string) { g.SetPolicy(model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: name}, nil) }
	for _, id := range []model.WorkloadID{one, two} {
		g.SetWorkload(id, &model.WorkloadEndpoint{ID: id, Labels: map[string]string{"pod": id.Workload}})
	}
	g.InSync()
	for _, c := range []struct {
		name string
		do   func()
		want []string
	}{
		{"two policies", func() { set("a", 1, false); set("b", 2, false) }, []string{"default/a", "default/b"}},
		{"the other order, and a policy in no workload's tiers", func() { set("a", 3, false); set("hidden", 0, true) }, []string{"default/b", "default/a"}},
		{"the hidden policy is removed", func() { gone("hidden") }, []string{"default/b", "default/a"}},
		{"a new policy gets its number", func() { set("c", 0, false) }, []string{"default/c", "default/b", "default/a"}},
		{"removed and put at another position before a flush", func() { gone("c"); set("c", 5, false) }, []string{"default/b", "default/a", "default/c"}},
		{"one policy replaces another", func() { gone("c"); set("d", 9, false) }, []string{"default/b", "default/a", "default/d"}},
	} {
		c.do()
		m.Apply(g.Flush(), true)
		m.Check(t, c.name)
		for _, id := range []model.WorkloadID{one, two} {
			if diff := cmp.Diff(c.want, ingressOf(m, id)); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", c.name, id.Workload, diff)
			}
		}
	}
	update := func(id model.WorkloadID) *felix.WorkloadEndpoint {
		return m.Things["WorkloadEndpoint "+idText(id)].(*felix.WorkloadEndpointUpdate).Endpoint
	}
	fresh := calc.New(calc.Config{Node: self})
	for _, id := range []model.WorkloadID{one, two} {
		fresh.SetWorkload(id, &model.WorkloadEndpoint{ID: id})
	}
	p := gnp()
	fresh.SetPolicy(p.ID, p)
	fresh.InSync()
	var tiers []*felix.TierInfo
	for _, msg := range fresh.Flush() {
		if u := msg.GetWorkloadEndpointUpdate(); u != nil {
			tiers = append(tiers, u.Endpoint.Tiers...)
		}
	}
	if len(tiers) != 2 || tiers[0] != tiers[1] {
		t.Errorf("tiers of equal endpoints are not the same ones: %v", tiers)
	}
	if update(one) == update(two) {
		t.Error("the endpoints themselves are the same one")
	}
}
