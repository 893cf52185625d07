// Package convert turns Kubernetes API objects into model values, refusing what an API server would have refused.
//
// Invariant: conversion is pure and complete. An object is either converted whole, with the API server's defaults filled
// in, or refused with one error that names every field that is wrong. Equal objects give equal values: lists whose order
// means nothing are sorted and free of duplicates, empty lists are nil.
//
//	core/v1 Service                                   → *model.Service
//	discovery.k8s.io/v1 EndpointSlice                 → *model.EndpointSlice (address type FQDN: nothing, and no error)
//	core/v1 Pod, Node, Namespace, ServiceAccount      → *model.Pod, …
//	networking.k8s.io/v1 ServiceCIDR                  → *model.ServiceCIDR
//	networking.k8s.io/v1 NetworkPolicy                → *model.Policy, as every policy
//	policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy, BaselineAdminNetworkPolicy; /v1alpha2 ClusterNetworkPolicy
//	projectcalico.org/v3 NetworkPolicy, GlobalNetworkPolicy, and the three staged kinds
//	projectcalico.org/v3 Tier, Profile, HostEndpoint  → *model.Tier, …
//	projectcalico.org/v3 NetworkSet, GlobalNetworkSet → *model.NetworkSet
//	crd.projectcalico.org/v1                          the same as projectcalico.org/v3
//
// Policies come out as Calico v3.31 converts them for Felix, selectors included; nodes as peers, which Felix does not know,
// are network sets (model.NodeSet). What Calico's API server shows in place of objects that are read themselves (a policy
// knp.default.x, a profile kns.x) gives nothing, and no error: no user can make an object under such a name.
//
// A policy that is refused is there all the same, and must not let through what it was made to stop. So it comes with a
// value as well as an error, in which everything that was not understood fails closed:
//
//   - a rule that allows matches nothing; one that denies or passes, or does one knows not what, denies everything of its
//     direction. Domain names as peers and HTTP matches are not understood;
//   - a policy of which it is not known to whom it applies, in which direction, or in which place, is distrusted: rules that
//     allow do nothing, rules that pass deny. It applies to everything it could have meant (its namespace; all of them), in
//     every direction it could have meant, and before all others of its tier if its place could be any. So a NetworkPolicy
//     isolates its namespace;
//   - a field of the spec that its kind does not have is as wrong as one of the wrong type: its rule is not understood, or,
//     outside of rules, the policy is distrusted;
//   - a Tier whose order is not understood comes first. Of a NetworkSet or a HostEndpoint the good parts are kept. A Profile
//     that is refused is not there, and denies everything like any profile that is not.
//
// Where kube-proxy lives with a value the API server lets through (an endpoint port 0, an unreadable trigger time), so
// does this package: the part is left out and the object kept.
package convert

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contiv-agent/contiv-agent/model"
)

// ErrUnknownKind is returned for objects of types this package has no model for.
var ErrUnknownKind = errors.New("not a kind the agent reads")

// Object converts obj. It returns nil and no error for an object that is fine and means nothing to a data plane (an
// EndpointSlice of host names), an *Error for one that breaks the API's rules (with a value, if it is a policy: see above),
// and ErrUnknownKind for other types.
// obj is only read, and nothing of the result points into it.
func Object(obj runtime.Object) (model.Object, error) {
	if o, ok := obj.(*unstructured.Unstructured); ok {
		return decodeUnstructured(o)
	}
	ref, ok := Ref(obj)
	if !ok {
		return nil, fmt.Errorf("%T: %w", obj, ErrUnknownKind)
	}
	return typed(obj, &problems{ref: ref})
}

// finish turns "converted, unless there are problems" into the two results of Object, keeping nil an untyped nil.
func finish[T model.Object](o T, ps *problems) (model.Object, error) {
	if err := ps.err(); err != nil {
		return nil, err
	}
	return o, nil
}

// finishClosed is finish for what fails closed: an object with problems is returned with them, unless there is nothing of
// it, or no name to keep it under.
func finishClosed[T any, P interface {
	*T
	model.Object
}](o P, ps *problems) (model.Object, error) {
	if o == nil || ps.nameless() {
		return nil, ps.err()
	}
	return o, ps.err()
}

// nameless tells that the object's name or namespace cannot be one: nothing can be kept under it.
func (ps *problems) nameless() bool {
	for i := range ps.list {
		if f := ps.list[i].Field; f == "metadata.name" || f == "metadata.namespace" {
			return true
		}
	}
	return false
}

// Ref names obj the way its converted form would, without converting it; ok is false for types Object does not know.
func Ref(obj runtime.Object) (ref model.Ref, ok bool) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		k, ok := unstructuredKind(o)
		if !ok {
			return model.Ref{}, false
		}
		return k.Ref(o.Object), true
	case *corev1.Service:
		return namespaced(model.KindService, &o.ObjectMeta), true
	case *discoveryv1.EndpointSlice:
		return namespaced(model.KindEndpointSlice, &o.ObjectMeta), true
	case *corev1.Pod:
		return namespaced(model.KindPod, &o.ObjectMeta), true
	case *corev1.Node:
		return model.Ref{Kind: model.KindNode, Name: o.Name}, true
	case *corev1.Namespace:
		return model.Ref{Kind: model.KindNamespace, Name: o.Name}, true
	case *networkingv1.ServiceCIDR:
		return model.Ref{Kind: model.KindServiceCIDR, Name: o.Name}, true
	case *corev1.ServiceAccount:
		return namespaced(model.KindServiceAccount, &o.ObjectMeta), true
	case *networkingv1.NetworkPolicy:
		return namespaced(model.Kind(model.KindNetworkPolicy), &o.ObjectMeta), true
	}
	return model.Ref{}, false
}

func namespaced(k model.Kind, m *metav1.ObjectMeta) model.Ref {
	return model.Ref{Kind: k, Namespace: namespaceOf(m), Name: m.Name}
}

// namespaceOf is the namespace an API server would have put the object in: "default" if it says none.
func namespaceOf(m *metav1.ObjectMeta) string {
	if m.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return m.Namespace
}
