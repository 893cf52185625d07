package model

import "testing"

func TestStaged(t *testing.T) {
	for _, c := range []struct {
		kind   PolicyKind
		staged StagedAction
		action StagedAction
		listed bool
		target PolicyKind
	}{
		{KindNetworkPolicy, "", "", true, KindNetworkPolicy},
		{KindNetworkPolicy, StagedSet, StagedSet, false, KindNetworkPolicy},
		{KindAdminNetworkPolicy, StagedSet, StagedSet, false, KindAdminNetworkPolicy},
		{KindTieredPolicy, "", "", true, KindTieredPolicy},
		{KindStagedKubernetesPolicy, "", StagedSet, true, KindNetworkPolicy},
		{KindStagedNetworkPolicy, StagedLearn, StagedLearn, true, KindCalicoNetworkPolicy},
		{KindStagedNetworkPolicy, StagedIgnore, StagedIgnore, true, KindCalicoNetworkPolicy},
		{KindStagedGlobalPolicy, StagedDelete, StagedDelete, false, KindGlobalNetworkPolicy},
	} {
		p := &Policy{ID: PolicyID{Kind: c.kind, Namespace: "prod", Name: "web"}, Staged: c.staged}
		if p.StagedAction() != c.action || p.Listed() != c.listed || p.Target() != (PolicyID{c.target, "prod", "web"}) {
			t.Errorf("%s %q: action %q, listed %v, target %s", c.kind, c.staged, p.StagedAction(), p.Listed(), p.Target())
		}
	}
}
