package model

import "strings"

// marks are what names of policies start with on Felix's wire, up to v3.31, and the kinds they stand for. The first that fits
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

// PolicyIDOf is the policy that has a name on Felix's wire in a tier: the way back from PolicyID.FelixName, as far as names tell.
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
