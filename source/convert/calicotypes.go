package convert

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
)

// The kinds of projectcalico.org/v3, with the fields this package reads, restated from projectcalico/api v3.31.
// crd.projectcalico.org/v1 has the same fields. Each kind has its own type, because a field that another kind has is unknown
// here; the specs of policies are those of calico/v3.

type calicoPolicy struct { // NetworkPolicy
	object
	Spec v3.Spec `json:"spec"`
}

type globalPolicy struct { // GlobalNetworkPolicy
	object
	Spec v3.GlobalSpec `json:"spec"`
}

type stagedPolicy struct { // StagedNetworkPolicy
	object
	Spec struct {
		v3.Spec
		StagedAction string `json:"stagedAction"`
	} `json:"spec"`
}

type stagedGlobalPolicy struct { // StagedGlobalNetworkPolicy
	object
	Spec struct {
		v3.GlobalSpec
		StagedAction string `json:"stagedAction"`
	} `json:"spec"`
}

type stagedKubernetesPolicy struct { // StagedKubernetesNetworkPolicy
	object
	Spec struct {
		networkingv1.NetworkPolicySpec
		StagedAction string `json:"stagedAction"`
	} `json:"spec"`
}

type calicoTier struct {
	object
	Spec struct {
		Order         *float64 `json:"order"`
		DefaultAction string   `json:"defaultAction"`
	} `json:"spec"`
}

type calicoProfile struct {
	object
	Spec v3.ProfileSpec `json:"spec"`
}

type networkSet struct { // NetworkSet, GlobalNetworkSet
	object
	Spec struct {
		Nets []string `json:"nets"`
	} `json:"spec"`
}

type hostEndpoint struct {
	object
	Spec struct {
		Node          string   `json:"node"`
		InterfaceName string   `json:"interfaceName"`
		ExpectedIPs   []string `json:"expectedIPs"`
		Profiles      []string `json:"profiles"`
		Ports         []struct {
			Name     string             `json:"name"`
			Protocol intstr.IntOrString `json:"protocol"`
			Port     int32              `json:"port"`
		} `json:"ports"`
	} `json:"spec"`
}

// policySpec returns the spec of a policy of Calico's; nil for all other types.
func policySpec(obj any) *v3.Policy {
	switch o := obj.(type) {
	case *calicoPolicy:
		return &v3.Policy{GlobalSpec: v3.GlobalSpec{Spec: o.Spec}}
	case *globalPolicy:
		return &v3.Policy{GlobalSpec: o.Spec}
	case *stagedPolicy:
		return &v3.Policy{GlobalSpec: v3.GlobalSpec{Spec: o.Spec.Spec}, StagedAction: o.Spec.StagedAction}
	case *stagedGlobalPolicy:
		return &v3.Policy{GlobalSpec: o.Spec.GlobalSpec, StagedAction: o.Spec.StagedAction}
	}
	return nil
}
