package model

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestNodeSet(t *testing.T) {
	a, b, c := netip.MustParseAddr("192.168.16.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("203.0.113.1")
	got := NodeSet(&Node{
		Name: "n1", Labels: map[string]string{"pool": "db"}, InternalIPs: []netip.Addr{a, b}, ExternalIPs: []netip.Addr{c, a},
	})
	want := &NetworkSet{
		Name: "node:n1", Labels: map[string]string{LabelNode: "n1", "pcnode.pool": "db"},
		Nets: []netip.Prefix{netip.PrefixFrom(a, 32), netip.PrefixFrom(b, 128), netip.PrefixFrom(c, 32)},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
		t.Error(d)
	}
}

// Two objects never share a Ref: each kind has a different name.
func TestRefs(t *testing.T) {
	for _, c := range []struct {
		o    Object
		want string
	}{
		{&ServiceAccount{Namespace: "prod", Name: "web"}, "ServiceAccount prod/web"},
		{&Policy{ID: PolicyID{KindNetworkPolicy, "prod", "web"}}, "NetworkPolicy prod/web"},
		{&Policy{ID: PolicyID{KindCalicoNetworkPolicy, "prod", "web"}}, "CalicoNetworkPolicy prod/web"},
		{&Policy{ID: PolicyID{KindClusterNetworkPolicy, "", "web"}}, "ClusterNetworkPolicy web"},
		{&Tier{Name: "sec"}, "Tier sec"},
		{&Profile{Name: "p"}, "Profile p"},
		{&NetworkSet{Name: "prod/ext"}, "NetworkSet prod/ext"},
		{&NetworkSet{Name: "ext"}, "GlobalNetworkSet ext"},
		{&HostEndpoint{ID: HostEndpointID{Node: "n1", Name: "eth"}}, "HostEndpoint eth"},
	} {
		if got := c.o.Ref().String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestBuiltinTiers(t *testing.T) {
	tiers := BuiltinTiers()
	if !slices.IsSortedFunc(tiers, func(a, b *Tier) int {
		if c := a.Order.Compare(b.Order); c != 0 {
			return c
		}
		return compareNames(a.Name, "", b.Name, "")
	}) {
		t.Error("not in the order in which they are met")
	}
	for _, tier := range tiers {
		if tier.DefaultAction.Passes() == (tier.Name == TierDefault) {
			t.Errorf("tier %s ends with %s", tier.Name, tier.DefaultAction)
		}
	}
}
