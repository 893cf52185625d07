package convert

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The kinds of projectcalico.org/v3, with the fields this package reads, restated from projectcalico/api v3.31.
// crd.projectcalico.org/v1 has the same fields.

type calicoPolicy struct { // NetworkPolicy
	object
	Spec calicoSpec `json:"spec"`
}

type globalPolicy struct { // GlobalNetworkPolicy
	object
	Spec globalSpec `json:"spec"`
}

type stagedPolicy struct { // StagedNetworkPolicy
	object
	Spec struct {
		calicoSpec
		StagedAction string `json:"stagedAction"`
	} `json:"spec"`
}

type stagedGlobalPolicy struct { // StagedGlobalNetworkPolicy
	object
	Spec struct {
		globalSpec
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

type calicoSpec struct {
	Tier                   string       `json:"tier"`
	Order                  *float64     `json:"order"`
	Ingress                []calicoRule `json:"ingress"`
	Egress                 []calicoRule `json:"egress"`
	Selector               string       `json:"selector"`
	Types                  []string     `json:"types"`
	ServiceAccountSelector string       `json:"serviceAccountSelector"`
	PerformanceHints       []string     `json:"performanceHints"`
}

type globalSpec struct {
	calicoSpec
	NamespaceSelector string `json:"namespaceSelector"`
	DoNotTrack        bool   `json:"doNotTrack"`
	PreDNAT           bool   `json:"preDNAT"`
	ApplyOnForward    bool   `json:"applyOnForward"`
}

type calicoRule struct {
	Metadata *struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Action      string              `json:"action"`
	IPVersion   *int32              `json:"ipVersion"`
	Protocol    *intstr.IntOrString `json:"protocol"`
	ICMP        *calicoICMP         `json:"icmp"`
	NotProtocol *intstr.IntOrString `json:"notProtocol"`
	NotICMP     *calicoICMP         `json:"notICMP"`
	Source      calicoEntity        `json:"source"`
	Destination calicoEntity        `json:"destination"`
	HTTP        *calicoHTTP         `json:"http"`
}

type calicoICMP struct {
	Type *int32 `json:"type"`
	Code *int32 `json:"code"`
}

type calicoHTTP struct {
	Methods []string `json:"methods"`
	Paths   []struct {
		Exact  string `json:"exact"`
		Prefix string `json:"prefix"`
	} `json:"paths"`
}

type calicoEntity struct {
	Nets              []string             `json:"nets"`
	Selector          string               `json:"selector"`
	NamespaceSelector string               `json:"namespaceSelector"`
	Services          *calicoService       `json:"services"`
	Ports             []intstr.IntOrString `json:"ports"`
	NotNets           []string             `json:"notNets"`
	NotSelector       string               `json:"notSelector"`
	NotPorts          []intstr.IntOrString `json:"notPorts"`
	ServiceAccounts   *calicoAccounts      `json:"serviceAccounts"`
}

type calicoService struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

type calicoAccounts struct {
	Names    []string `json:"names"`
	Selector string   `json:"selector"`
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
	Spec struct {
		Ingress       []calicoRule      `json:"ingress"`
		Egress        []calicoRule      `json:"egress"`
		LabelsToApply map[string]string `json:"labelsToApply"`
	} `json:"spec"`
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
