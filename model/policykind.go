package model

// API groups of policies.
const (
	groupKubernetes = "networking.k8s.io"
	groupAdmin      = "policy.networking.k8s.io"
	groupCalico     = "projectcalico.org"
)

// PolicyKindInfo is what other rooms need to know of a kind of policy. A new kind needs a constant, a row in PolicyKinds, and its
// conversion in source/convert.
type PolicyKindInfo struct {
	Kind       PolicyKind
	Group      string // API group; of Calico's two groups the one that users see
	Name       string // the kind within its group
	Stored     string // the kind in Calico's policy keys and on Felix's wire from v3.32 on
	Namespaced bool
	Staged     bool // listed and never enforced
	Conditions bool // its API has status conditions
	// mark is the prefix of its names on Felix's wire up to v3.31. Of kinds whose marks both fit, the first of PolicyKinds counts.
	mark string
	// tiered: the tier and a dot follow the mark.
	tiered bool
}

// PolicyKinds returns all kinds of policies that are objects of an API.
func PolicyKinds() []PolicyKindInfo { return policyKinds[:] }

var policyKinds = [...]PolicyKindInfo{ // read only
	{Kind: KindStagedKubernetesPolicy, Group: groupCalico, Name: "StagedKubernetesNetworkPolicy", Stored: "StagedKubernetesNetworkPolicy", Namespaced: true, Staged: true, mark: "staged:knp.default."},
	{Kind: KindStagedNetworkPolicy, Group: groupCalico, Name: "StagedNetworkPolicy", Stored: "StagedNetworkPolicy", Namespaced: true, Staged: true, mark: "staged:"},
	{Kind: KindNetworkPolicy, Group: groupKubernetes, Name: "NetworkPolicy", Stored: "KubernetesNetworkPolicy", Namespaced: true, mark: "knp.default."},
	{Kind: KindCalicoNetworkPolicy, Group: groupCalico, Name: "NetworkPolicy", Stored: "NetworkPolicy", Namespaced: true},
	{Kind: KindStagedGlobalPolicy, Group: groupCalico, Name: "StagedGlobalNetworkPolicy", Stored: "StagedGlobalNetworkPolicy", Staged: true, mark: "staged:"},
	{Kind: KindAdminNetworkPolicy, Group: groupAdmin, Name: "AdminNetworkPolicy", Stored: "KubernetesAdminNetworkPolicy", Conditions: true, mark: "kanp." + TierAdmin + "."},
	{Kind: KindBaselinePolicy, Group: groupAdmin, Name: "BaselineAdminNetworkPolicy", Stored: "KubernetesBaselineAdminNetworkPolicy", Conditions: true, mark: "kbanp." + TierBaseline + "."},
	{Kind: KindClusterNetworkPolicy, Group: groupAdmin, Name: "ClusterNetworkPolicy", Stored: "KubernetesClusterNetworkPolicy", Conditions: true, mark: "kcnp.", tiered: true},
	{Kind: KindGlobalNetworkPolicy, Group: groupCalico, Name: "GlobalNetworkPolicy", Stored: "GlobalNetworkPolicy"},
}

// Info returns what is known of the kind; false: no API has objects of it.
func (k PolicyKind) Info() (PolicyKindInfo, bool) {
	for i := range policyKinds {
		if policyKinds[i].Kind == k {
			return policyKinds[i], true
		}
	}
	return PolicyKindInfo{}, false
}

// PolicyKindStored returns the kind with that name in Calico's keys; false: there is none.
func PolicyKindStored(stored string) (PolicyKind, bool) {
	for i := range policyKinds {
		if policyKinds[i].Stored == stored {
			return policyKinds[i].Kind, true
		}
	}
	return "", false
}
