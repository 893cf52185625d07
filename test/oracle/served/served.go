// Package served turns the objects of a cluster into an answer: do they declare that a pod serves a port? The ports of its containers, those of
// the endpoints of Services, and those that rules for its ingress name do. A rule has to apply to the pod, allow, and name at most 1,024 ports.
//
// Access lists take such a port for a server's, even if the pod uses it as a client (ADR 12).
//
// Invariant: the package shares no code with the agent. It asks test/oracle/policy which pods a policy applies to.
package served

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// Port reports whether objects declare a port of the pod with an address. The peer is the address of another pod.
func Port(objects []policy.Object, pod, peer netip.Addr, proto policy.Protocol, number uint16) (bool, error) {
	for _, o := range objects {
		spans, denies := spansOf(o, pod)
		if !slices.ContainsFunc(spans, func(s span) bool { return s.declares(proto, number) }) {
			continue
		}
		if denies == nil {
			return true, nil
		}
		if applies, err := isDenied(objects, denies, pod, peer); applies || err != nil {
			return applies, err
		}
	}
	return false, nil
}

// isDenied reports whether a policy that denies all ingress, alone, applies to a pod.
func isDenied(objects []policy.Object, denies policy.Object, pod, peer netip.Addr) (bool, error) {
	alone := []policy.Object{denies}
	for _, o := range objects {
		if _, denies := spansOf(o, pod); denies == nil {
			alone = append(alone, o)
		}
	}
	c, err := policy.Read(alone)
	if err != nil {
		return false, err
	}
	return !c.JudgeIngress(&policy.Flow{Src: peer, Dst: pod, Proto: policy.TCP, SrcPort: 1, DstPort: 1}).Allowed, nil
}

// spansOf returns the ports of a pod that an object declares. A policy declares them if it applies to the pod; then denies is the same policy
// with one rule, which denies all ingress from pods. Otherwise denies is nil.
func spansOf(o policy.Object, pod netip.Addr) (spans []span, denies policy.Object) {
	all := []policy.AdminPeer{{Namespaces: &metav1.LabelSelector{}}}
	switch o := o.(type) {
	case *corev1.Pod:
		return podSpans(o, pod), nil
	case *discoveryv1.EndpointSlice:
		return sliceSpans(o, pod), nil
	case *networkingv1.NetworkPolicy:
		p := o.DeepCopy()
		p.Spec.Ingress, p.Spec.Egress = nil, nil
		return networkPolicySpans(o), p
	case *policy.AdminNetworkPolicy:
		p := *o
		p.Spec.Ingress, p.Spec.Egress = []policy.AdminRule{{Action: "Deny", From: all}}, nil
		return adminSpans(o.Spec.Ingress), &p
	case *policy.BaselineAdminNetworkPolicy:
		p := *o
		p.Spec.Ingress, p.Spec.Egress = []policy.AdminRule{{Action: "Deny", From: all}}, nil
		return adminSpans(o.Spec.Ingress), &p
	case *policy.ClusterNetworkPolicy:
		p := *o
		p.Spec.Ingress, p.Spec.Egress = []policy.ClusterRule{{Action: "Deny", From: all}}, nil
		return clusterSpans(o.Spec.Ingress), &p
	case *policy.CalicoPolicy:
		p := *o
		p.Spec.Ingress, p.Spec.Egress = []policy.CalicoRule{{Action: "Deny"}}, nil
		return calicoSpans(o.Spec.Ingress), &p
	}
	return nil, nil
}
