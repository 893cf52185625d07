package policy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The kinds k8s.io/api does not have, as their documents describe them: the field names are the interface. Only what
// policies can say is here; status is not.

// AdminNetworkPolicy is policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy.
type AdminNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              AdminSpec `json:"spec"`
}

// BaselineAdminNetworkPolicy is policy.networking.k8s.io/v1alpha1 BaselineAdminNetworkPolicy; there is one, "default".
type BaselineAdminNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              AdminSpec `json:"spec"`
}

// AdminSpec is the spec of both kinds; a baseline policy has no priority.
type AdminSpec struct {
	Priority *int32      `json:"priority,omitempty"`
	Subject  Subject     `json:"subject"`
	Ingress  []AdminRule `json:"ingress,omitempty"`
	Egress   []AdminRule `json:"egress,omitempty"`
}

// Subject is what cluster-wide policies apply to: one of the two.
type Subject struct {
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	Pods       *NamespacedPod        `json:"pods,omitempty"`
}

// NamespacedPod selects pods by their namespace and by their labels.
type NamespacedPod struct {
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
	PodSelector       metav1.LabelSelector `json:"podSelector"`
}

// AdminRule is a rule of either direction: From in ingress rules, To in egress rules.
type AdminRule struct {
	Name   string       `json:"name,omitempty"`
	Action string       `json:"action"` // Allow, Deny, Pass
	From   []AdminPeer  `json:"from,omitempty"`
	To     []AdminPeer  `json:"to,omitempty"`
	Ports  *[]AdminPort `json:"ports,omitempty"`
}

// AdminPeer is a peer of either direction: exactly one field is set; the last three in egress rules only.
type AdminPeer struct {
	Namespaces  *metav1.LabelSelector `json:"namespaces,omitempty"`
	Pods        *NamespacedPod        `json:"pods,omitempty"`
	Nodes       *metav1.LabelSelector `json:"nodes,omitempty"`
	Networks    []string              `json:"networks,omitempty"`
	DomainNames []string              `json:"domainNames,omitempty"`
}

// AdminPort is one of the three.
type AdminPort struct {
	PortNumber *AdminPortNumber `json:"portNumber,omitempty"`
	NamedPort  *string          `json:"namedPort,omitempty"`
	PortRange  *AdminPortRange  `json:"portRange,omitempty"`
}

// AdminPortNumber is one port of one protocol.
type AdminPortNumber struct {
	Protocol string `json:"protocol"`
	Port     int32  `json:"port"`
}

// AdminPortRange is a range of ports, both ends included.
type AdminPortRange struct {
	Protocol string `json:"protocol,omitempty"` // TCP if absent
	Start    int32  `json:"start"`
	End      int32  `json:"end"`
}

// ClusterNetworkPolicy is policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy.
type ClusterNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ClusterSpec `json:"spec"`
}

// ClusterSpec is its spec.
type ClusterSpec struct {
	Tier     string        `json:"tier"` // Admin, Baseline
	Priority int32         `json:"priority"`
	Subject  Subject       `json:"subject"`
	Ingress  []ClusterRule `json:"ingress,omitempty"`
	Egress   []ClusterRule `json:"egress,omitempty"`
}

// ClusterRule is a rule of either direction.
type ClusterRule struct {
	Name      string            `json:"name,omitempty"`
	Action    string            `json:"action"` // Accept, Deny, Pass
	From      []AdminPeer       `json:"from,omitempty"`
	To        []AdminPeer       `json:"to,omitempty"`
	Protocols []ClusterProtocol `json:"protocols,omitempty"`
}

// ClusterProtocol is one of the four.
type ClusterProtocol struct {
	TCP                  *ClusterL4 `json:"tcp,omitempty"`
	UDP                  *ClusterL4 `json:"udp,omitempty"`
	SCTP                 *ClusterL4 `json:"sctp,omitempty"`
	DestinationNamedPort string     `json:"destinationNamedPort,omitempty"`
}

// ClusterL4 is what a rule says about TCP, UDP or SCTP: a port.
type ClusterL4 struct {
	DestinationPort *ClusterPort `json:"destinationPort,omitempty"`
}

// ClusterPort is a number or a range.
type ClusterPort struct {
	Number int32             `json:"number,omitempty"`
	Range  *ClusterPortRange `json:"range,omitempty"`
}

// ClusterPortRange includes both ends.
type ClusterPortRange struct {
	Start int32 `json:"start"`
	End   int32 `json:"end"`
}

// CalicoTier is projectcalico.org/v3 Tier.
type CalicoTier struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Order         *float64 `json:"order,omitempty"`         // none: last
		DefaultAction string   `json:"defaultAction,omitempty"` // Deny if absent
	} `json:"spec"`
}

// CalicoPolicy is projectcalico.org/v3 NetworkPolicy, or GlobalNetworkPolicy if it has no namespace.
type CalicoPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              CalicoSpec `json:"spec"`
}

// CalicoSpec is the spec of both kinds.
type CalicoSpec struct {
	Tier                   string       `json:"tier,omitempty"`
	Order                  *float64     `json:"order,omitempty"` // none: last
	Selector               string       `json:"selector,omitempty"`
	NamespaceSelector      string       `json:"namespaceSelector,omitempty"` // global policies only
	ServiceAccountSelector string       `json:"serviceAccountSelector,omitempty"`
	Types                  []string     `json:"types,omitempty"`
	Ingress                []CalicoRule `json:"ingress,omitempty"`
	Egress                 []CalicoRule `json:"egress,omitempty"`
	ApplyOnForward         bool         `json:"applyOnForward,omitempty"` // host endpoints
}

// CalicoRule is a rule with all of Calico's matches but HTTP.
type CalicoRule struct {
	Action      string              `json:"action"` // Allow, Deny, Pass, Log
	IPVersion   *int                `json:"ipVersion,omitempty"`
	Protocol    *intstr.IntOrString `json:"protocol,omitempty"`
	NotProtocol *intstr.IntOrString `json:"notProtocol,omitempty"`
	ICMP        *CalicoICMP         `json:"icmp,omitempty"`
	NotICMP     *CalicoICMP         `json:"notICMP,omitempty"`
	Source      *CalicoEntity       `json:"source,omitempty"`
	Destination *CalicoEntity       `json:"destination,omitempty"`
}

// CalicoICMP is a type, and perhaps a code.
type CalicoICMP struct {
	Type *int `json:"type,omitempty"`
	Code *int `json:"code,omitempty"`
}

// CalicoEntity is one side of a rule.
type CalicoEntity struct {
	Nets              []string             `json:"nets,omitempty"`
	NotNets           []string             `json:"notNets,omitempty"`
	Selector          string               `json:"selector,omitempty"`
	NotSelector       string               `json:"notSelector,omitempty"`
	NamespaceSelector string               `json:"namespaceSelector,omitempty"`
	Ports             []intstr.IntOrString `json:"ports,omitempty"` // 80, "80:90", "name"
	NotPorts          []intstr.IntOrString `json:"notPorts,omitempty"`
	Services          *CalicoService       `json:"services,omitempty"`
	ServiceAccounts   *CalicoAccounts      `json:"serviceAccounts,omitempty"`
}

// CalicoService names a Service; no namespace means the policy's.
type CalicoService struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// CalicoAccounts selects by service account: names are or-ed, both are and-ed.
type CalicoAccounts struct {
	Names    []string `json:"names,omitempty"`
	Selector string   `json:"selector,omitempty"`
}

// CalicoNetworkSet is projectcalico.org/v3 NetworkSet, or GlobalNetworkSet if it has no namespace.
type CalicoNetworkSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Nets []string `json:"nets,omitempty"`
	} `json:"spec"`
}

// CalicoProfile is projectcalico.org/v3 Profile.
type CalicoProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Ingress       []CalicoRule      `json:"ingress,omitempty"`
		Egress        []CalicoRule      `json:"egress,omitempty"`
		LabelsToApply map[string]string `json:"labelsToApply,omitempty"`
	} `json:"spec"`
}

// CalicoHostEndpoint is projectcalico.org/v3 HostEndpoint.
type CalicoHostEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Node          string   `json:"node"`
		InterfaceName string   `json:"interfaceName,omitempty"`
		ExpectedIPs   []string `json:"expectedIPs,omitempty"`
		Profiles      []string `json:"profiles,omitempty"`
	} `json:"spec"`
}
