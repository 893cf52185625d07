package model

import "testing"

func TestPolicyIDOf(t *testing.T) {
	for _, c := range []struct {
		tier, name string
		want       PolicyID
	}{
		{"default", "prod/knp.default.web", PolicyID{KindNetworkPolicy, "prod", "web"}},
		{"default", "prod/default.web", PolicyID{KindCalicoNetworkPolicy, "prod", "default.web"}},
		{"default", "prod/staged:knp.default.web", PolicyID{KindStagedKubernetesPolicy, "prod", "web"}},
		{"sec", "prod/staged:sec.web", PolicyID{KindStagedNetworkPolicy, "prod", "sec.web"}},
		{"sec", "staged:sec.web", PolicyID{KindStagedGlobalPolicy, "", "sec.web"}},
		{"sec", "sec.web", PolicyID{KindGlobalNetworkPolicy, "", "sec.web"}},
		{"adminnetworkpolicy", "kanp.adminnetworkpolicy.x", PolicyID{KindAdminNetworkPolicy, "", "x"}},
		{"baselineadminnetworkpolicy", "kbanp.baselineadminnetworkpolicy.default", PolicyID{KindBaselinePolicy, "", "default"}},
		{"kube-admin", "kcnp.kube-admin.x", PolicyID{KindClusterNetworkPolicy, "", "x"}},
	} {
		got := PolicyIDOf(c.tier, c.name)
		if got != c.want || got.FelixName(c.tier) != c.name {
			t.Errorf("%s in tier %s: %v, whose name is %s", c.name, c.tier, got, got.FelixName(c.tier))
		}
	}
}
