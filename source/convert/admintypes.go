package convert

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of policy.networking.k8s.io, with the fields this package reads, restated from sigs.k8s.io/network-policy-api
// v0.2.0. That module depends on controller-runtime and code generators. Fields are pointers where missing differs from
// zero.

type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            map[string]any `json:"status"`
}

type adminPolicy struct { // v1alpha1 AdminNetworkPolicy
	object
	Spec struct {
		Priority *int32         `json:"priority"`
		Subject  AdminSubject   `json:"subject"`
		Ingress  []adminIngress `json:"ingress"`
		Egress   []adminEgress  `json:"egress"`
	} `json:"spec"`
}

type baselinePolicy struct { // v1alpha1 BaselineAdminNetworkPolicy
	object
	Spec struct {
		Subject AdminSubject     `json:"subject"`
		Ingress []adminIngress   `json:"ingress"`
		Egress  []baselineEgress `json:"egress"`
	} `json:"spec"`
}

type clusterPolicy struct { // v1alpha2 ClusterNetworkPolicy
	object
	Spec struct {
		Tier     string           `json:"tier"`
		Priority *int32           `json:"priority"`
		Subject  AdminSubject     `json:"subject"`
		Ingress  []clusterIngress `json:"ingress"`
		Egress   []clusterEgress  `json:"egress"`
	} `json:"spec"`
}

// AdminSubject selects the pods that an admin policy applies to, or a peer of one of its rules: all pods of some
// namespaces, or some of their pods. Exactly one field is set.
type AdminSubject struct {
	Namespaces *metav1.LabelSelector `json:"namespaces"`
	Pods       *AdminPods            `json:"pods"`
}

// AdminPods selects pods by their namespaces' labels and by their own labels; an empty selector selects all.
type AdminPods struct {
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
	PodSelector       metav1.LabelSelector `json:"podSelector"`
}

// adminRule holds the fields that rules of all three kinds share.
type adminRule struct {
	Name   string `json:"name"`
	Action string `json:"action"`
}

type adminIngress struct {
	adminRule
	From  []AdminSubject `json:"from"`
	Ports *[]AdminPort   `json:"ports"`
}

type adminEgress struct {
	adminRule
	To    []namedPeer  `json:"to"`
	Ports *[]AdminPort `json:"ports"`
}

type baselineEgress struct {
	adminRule
	To    []egressPeer `json:"to"`
	Ports *[]AdminPort `json:"ports"`
}

type clusterIngress struct {
	adminRule
	From      []AdminSubject     `json:"from"`
	Protocols *[]clusterProtocol `json:"protocols"`
}

type clusterEgress struct {
	adminRule
	To        []namedPeer        `json:"to"`
	Protocols *[]clusterProtocol `json:"protocols"`
}

type egressPeer struct {
	AdminSubject
	Nodes    *metav1.LabelSelector `json:"nodes"`
	Networks *[]string             `json:"networks"`
}

type namedPeer struct {
	egressPeer
	DomainNames *[]string `json:"domainNames"`
}

// AdminPort is a port in a rule of an AdminNetworkPolicy or BaselineAdminNetworkPolicy. Exactly one field is set.
type AdminPort struct {
	PortNumber *struct {
		Protocol corev1.Protocol `json:"protocol"`
		Port     int32           `json:"port"`
	} `json:"portNumber"`
	NamedPort *string `json:"namedPort"`
	PortRange *struct {
		Protocol corev1.Protocol `json:"protocol"`
		Start    int32           `json:"start"`
		End      int32           `json:"end"`
	} `json:"portRange"`
}

type clusterProtocol struct {
	TCP                  *clusterPort `json:"tcp"`
	UDP                  *clusterPort `json:"udp"`
	SCTP                 *clusterPort `json:"sctp"`
	DestinationNamedPort *string      `json:"destinationNamedPort"`
}

type clusterPort struct {
	DestinationPort *struct {
		Number *int32 `json:"number"`
		Range  *struct {
			Start int32 `json:"start"`
			End   int32 `json:"end"`
		} `json:"range"`
	} `json:"destinationPort"`
}
