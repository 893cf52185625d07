package model

import "strings"

// WireName names a policy in Felix's messages, within its tier.
type WireName struct{ Tier, Name string }

// PolicyIDOf returns the policy with that name on Felix's wire. It is the inverse of PolicyID.FelixName, as far as
// names are unique.
func PolicyIDOf(tier, name string) PolicyID {
	namespace, rest, namespaced := strings.Cut(name, "/")
	if !namespaced {
		namespace, rest = "", name
	}
	for i := range policyKinds {
		k := &policyKinds[i]
		short, fits := strings.CutPrefix(rest, k.mark)
		if k.Namespaced != namespaced || !fits {
			continue
		}
		if k.tiered {
			short = strings.TrimPrefix(short, tier+".")
		}
		return PolicyID{Kind: k.Kind, Namespace: namespace, Name: short}
	}
	return PolicyID{}
}
