package model

import (
	"slices"
	"testing"
)

func TestFelixName(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		want   string
	}{
		{Policy{ID: PolicyID{KindNetworkPolicy, "prod", "web"}, Tier: TierDefault}, "prod/knp.default.web"},
		{Policy{ID: PolicyID{KindStagedKubernetesPolicy, "prod", "web"}, Tier: TierDefault}, "prod/staged:knp.default.web"},
		{Policy{ID: PolicyID{KindAdminNetworkPolicy, "", "a"}, Tier: TierAdmin}, "kanp.adminnetworkpolicy.a"},
		{Policy{ID: PolicyID{KindBaselinePolicy, "", "b"}, Tier: TierBaseline}, "kbanp.baselineadminnetworkpolicy.b"},
		{Policy{ID: PolicyID{KindClusterNetworkPolicy, "", "c"}, Tier: "kube-admin"}, "kcnp.kube-admin.c"},
		{Policy{ID: PolicyID{KindCalicoNetworkPolicy, "prod", "sec.web"}, Tier: "sec"}, "prod/sec.web"},
		{Policy{ID: PolicyID{KindCalicoNetworkPolicy, "prod", "web"}, Tier: "sec"}, "prod/web"},
		{Policy{ID: PolicyID{KindStagedNetworkPolicy, "prod", "sec.web"}, Tier: "sec"}, "prod/staged:sec.web"},
		{Policy{ID: PolicyID{KindGlobalNetworkPolicy, "", "sec.deny-all"}, Tier: "sec"}, "sec.deny-all"},
		{Policy{ID: PolicyID{KindStagedGlobalPolicy, "", "all"}, Tier: "default"}, "staged:all"},
		{Policy{ID: PolicyID{KindTieredPolicy, "sec", "as-it-is"}, Tier: "sec"}, "as-it-is"},
	} {
		if got := c.policy.FelixName(); got != c.want {
			t.Errorf("%v in %s: %s, want %s", c.policy.ID, c.policy.Tier, got, c.want)
		}
	}
}

func TestOrder(t *testing.T) {
	list := []Order{{}, OrderOf(2), OrderOf(-1), OrderOf(0), {Value: 5}}
	slices.SortStableFunc(list, Order.Compare)
	if want := []Order{OrderOf(-1), OrderOf(0), OrderOf(2), {}, {Value: 5}}; !slices.Equal(list, want) {
		t.Errorf("%v, want %v", list, want)
	}
}

func TestActions(t *testing.T) {
	for _, c := range []struct {
		action                 Action
		allows, denies, passes bool
	}{
		{"", true, false, false},
		{"Allow", true, false, false},
		{ActionAllow, true, false, false},
		{ActionDeny, false, true, false},
		{TierDeny, false, true, false},
		{ActionPass, false, false, true},
		{"pass", false, false, true},
		{TierPass, false, false, true},
		{ActionLog, false, false, false},
		{"denied", false, false, false},
	} {
		if a := c.action; a.Allows() != c.allows || a.Denies() != c.denies || a.Passes() != c.passes {
			t.Errorf("%q: allows %v, denies %v, passes %v", a, a.Allows(), a.Denies(), a.Passes())
		}
	}
}

func TestProfileNames(t *testing.T) {
	if ns, ok := ProfileNamespace("kns.prod"); !ok || ns != "prod" {
		t.Error(ns, ok)
	}
	if _, ok := ProfileNamespace("ksa.prod.web"); ok {
		t.Error("a service account's profile is no namespace's")
	}
	if ns, name, ok := ProfileServiceAccount("ksa.prod.web.blue"); !ok || ns != "prod" || name != "web.blue" {
		t.Error(ns, name, ok)
	}
	for _, not := range []string{"kns.prod", "ksa.prod", "web"} {
		if _, _, ok := ProfileServiceAccount(not); ok {
			t.Errorf("%s is no service account's profile", not)
		}
	}
}

func TestEndpointIDs(t *testing.T) {
	a := WorkloadID{"n1", "k8s", "prod/web-0", "eth0"}
	if a.String() != "n1/k8s/prod/web-0/eth0" {
		t.Error(a)
	}
	for _, b := range []WorkloadID{
		{"n2", "k8s", "prod/web-0", "eth0"}, {"n1", "xxx", "a", "eth0"}, {"n1", "k8s", "prod/web-1", "eth0"}, {"n1", "k8s", "prod/web-0", "eth1"},
	} {
		if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
			t.Errorf("%v is not before %v", a, b)
		}
	}
	h := HostEndpointID{"n1", "eth0"}
	if h.String() != "n1/eth0" || h.Compare(HostEndpointID{"n1", "eth1"}) >= 0 || h.Compare(HostEndpointID{"n0", "eth1"}) <= 0 {
		t.Error(h)
	}
	p := PolicyID{KindNetworkPolicy, "prod", "web"}
	if p.String() != "NetworkPolicy prod/web" || p.Compare(PolicyID{KindNetworkPolicy, "prod", "xxx"}) >= 0 {
		t.Error(p)
	}
}
