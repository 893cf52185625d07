package calc

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// A closed policy is sent with one rule for each direction, which denies. An opened policy is sent with its rules again.
// Nothing is sent when neither changes.
func TestClosedPolicy(t *testing.T) {
	g := New(Config{Node: "node-1"})
	id := model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "prod", Name: "web"}
	policy := func(rules int) *model.Policy {
		p := &model.Policy{ID: id, Tier: model.TierDefault, Namespace: "prod", Selector: "all()", Ingress: true}
		for range rules {
			p.InboundRules = append(p.InboundRules, model.Rule{Action: model.ActionAllow, Source: model.Peer{Selector: "a == 'b'"}})
		}
		return p
	}
	sent := func() (rules []*felix.Rule, n int) {
		for _, m := range g.Flush() {
			if u := m.GetActivePolicyUpdate(); u != nil {
				rules, n = u.Policy.InboundRules, n+1
			}
		}
		return rules, n
	}
	g.SetWorkload(model.WorkloadID{Node: "node-1", Orchestrator: "k8s", Workload: "prod/web", Endpoint: "eth0"}, &model.WorkloadEndpoint{})
	g.SetPolicy(id, policy(3))
	g.ClosePolicy(id, true)
	g.InSync()
	needed := 0
	g.Pending(func(got model.PolicyID, is bool) {
		if got == id && is {
			needed++
		}
	})
	rules, n := sent()
	if needed != 1 || n != 1 || len(rules) != 1 || rules[0].Action != string(model.ActionDeny) || rules[0].RuleId != ClosedRule {
		t.Fatalf("closed, needed %d times: sent %d times, %v", needed, n, rules)
	}
	g.SetPolicy(id, policy(4))
	if _, n := sent(); n != 0 {
		t.Error("it changed while it is closed, and was sent again")
	}
	g.ClosePolicy(id, false)
	if rules, n := sent(); n != 1 || len(rules) != 4 {
		t.Errorf("opened: sent %d times, %d rules", n, len(rules))
	}
	g.ClosePolicy(id, false)
	if _, n := sent(); n != 0 {
		t.Error("it was open, and was sent again")
	}
	g.ClosePolicy(id, true)
	sent()
	g.SetPolicy(id, nil)
	g.Flush()
	g.SetPolicy(id, policy(2))
	if rules, n := sent(); n != 1 || len(rules) != 2 {
		t.Errorf("deleted and made again: sent %d times, %d rules", n, len(rules))
	}
}
