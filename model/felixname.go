package model

import "strings"

// marks are the prefixes of policy names on Felix's wire, up to v3.31, with the kinds they stand for. The first match
// counts.
var marks = [...]struct {
	namespaced bool
	mark       string
	kind       PolicyKind
}{
	{true, "staged:knp.default.", KindStagedKubernetesPolicy},
	{true, "staged:", KindStagedNetworkPolicy},
	{true, "knp.default.", KindNetworkPolicy},
	{true, "", KindCalicoNetworkPolicy},
	{false, "staged:", KindStagedGlobalPolicy},
	{false, "kanp." + TierAdmin + ".", KindAdminNetworkPolicy},
	{false, "kbanp." + TierBaseline + ".", KindBaselinePolicy},
	{false, "kcnp.", KindClusterNetworkPolicy},
	{false, "", KindGlobalNetworkPolicy},
}

// PolicyIDOf returns the policy with that name on Felix's wire. It is the inverse of PolicyID.FelixName, as far as
// names are unique.
func PolicyIDOf(tier, name string) PolicyID {
	namespace, rest, namespaced := strings.Cut(name, "/")
	if !namespaced {
		namespace, rest = "", name
	}
	for _, m := range marks {
		if m.namespaced != namespaced {
			continue
		}
		short, fits := strings.CutPrefix(rest, m.mark)
		if !fits {
			continue
		}
		if m.kind == KindClusterNetworkPolicy {
			short = strings.TrimPrefix(short, tier+".")
		}
		return PolicyID{Kind: m.kind, Namespace: namespace, Name: short}
	}
	return PolicyID{}
}
