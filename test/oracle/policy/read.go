package policy

import (
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
)

// Read takes in all objects of a cluster.
func Read(objects []Object) (*Cluster, error) {
	c := &Cluster{
		nodes: map[string]*node{}, namespaces: map[string]map[string]string{}, accounts: map[string]map[string]string{},
		at: map[netip.Addr]*pod{}, profiles: map[string]*policy{}, profileLabels: map[string]map[string]string{}, directions: map[direction][]*tier{},
	}
	for _, step := range []func(Object) error{c.readPlaces, c.readEndpoints, c.readPolicies} {
		for _, o := range objects {
			if err := step(o); err != nil {
				return nil, fmt.Errorf("%s: %w", KeyOf(o), err)
			}
		}
	}
	c.sortTiers()
	return c, nil
}

// readPolicies reads whatever has rules.
func (c *Cluster) readPolicies(o Object) error {
	switch o := o.(type) {
	case *networkingv1.NetworkPolicy:
		return c.addTierPolicy(TierDefault, readNetworkPolicy(c, o))
	case *AdminNetworkPolicy:
		return c.addTierPolicy(tierAdmin, readAdmin(c, KeyOf(o), o.Spec))
	case *BaselineAdminNetworkPolicy:
		return c.addTierPolicy(tierBaseline, readAdmin(c, KeyOf(o), o.Spec))
	case *ClusterNetworkPolicy:
		if o.Spec.Tier == "Baseline" {
			return c.addTierPolicy(tierKubeBaseline, readCluster(c, o))
		}
		return c.addTierPolicy(tierKubeAdmin, readCluster(c, o))
	case *CalicoTier:
		t := c.tier(o.Name)
		t.order, t.passes = 1e6, o.Spec.DefaultAction == "Pass" // no order is that of the default tier
		if o.Spec.Order != nil {
			t.order = *o.Spec.Order
		}
	case *CalicoPolicy:
		p, err := readCalico(c, o)
		if err != nil {
			return err
		}
		name := o.Spec.Tier
		if name == "" {
			name = TierDefault
		}
		return c.addTierPolicy(name, p)
	case *CalicoProfile:
		p, err := readProfile(c, o)
		c.profiles[o.Name] = p
		return err
	}
	return nil
}
