package convert

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of policy.networking.k8s.io as far as they are read, restated from sigs.k8s.io/network-policy-api v0.2.0: that
// module would bring controller-runtime and code generators with it. Fields are pointers where missing is not the same as
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

// AdminSubject is whom an admin policy is about, or a peer of one of its rules: all pods of namespaces, or some. One of the two is
// set.
type AdminSubject struct {
	Namespaces *metav1.LabelSelector `json:"namespaces"`
	Pods       *AdminPods            `json:"pods"`
}

// AdminPods are pods by their namespaces' labels and their own; an empty selector is all.
type AdminPods struct {
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
	PodSelector       metav1.LabelSelector `json:"podSelector"`
}

// adminRule is what rules of all three kinds have.
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

// AdminPort is a port of an AdminNetworkPolicy's or BaselineAdminNetworkPolicy's rule: one of the three is set.
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
