// Package convert turns Kubernetes API objects into model values, refusing what an API server would have refused.
//
// Invariant: conversion is pure and complete. An object is either converted whole, with the API server's defaults filled
// in, or refused with one error that names every field that is wrong. Equal objects give equal values: lists whose order
// means nothing are sorted and free of duplicates, empty lists are nil.
//
//	core/v1 Service                           → *model.Service
//	discovery/v1 EndpointSlice                → *model.EndpointSlice (address type FQDN: nothing, and no error)
//	core/v1 Pod, Node, Namespace              → *model.Pod, *model.Node, *model.Namespace
//	core/v1 ServiceAccount                    → *model.ServiceAccount
//	networking/v1 ServiceCIDR, NetworkPolicy  → *model.ServiceCIDR, *model.Policy
//
// A policy that is refused is there all the same, and must not let through what it was made to stop. So it comes with a
// value as well as an error, in which everything that was not understood fails closed:
//
//   - a rule that allows matches nothing; one that denies or passes, or does one knows not what, denies everything of its
//     direction;
//   - of a policy whose subject is not understood, rules that allow do nothing and rules that pass deny; it applies to every
//     pod it could have meant: those of its namespace, or all of them. A NetworkPolicy then isolates its namespace;
//   - an unknown direction (policyTypes) is both.
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
	switch o := obj.(type) {
	case *corev1.Service:
		return finish(service(o))
	case *discoveryv1.EndpointSlice:
		return endpointSlice(o)
	case *corev1.Pod:
		return finish(pod(o))
	case *corev1.Node:
		return finish(node(o))
	case *corev1.Namespace:
		return finish(namespace(o))
	case *corev1.ServiceAccount:
		return finish(serviceAccount(o))
	case *networkingv1.ServiceCIDR:
		return finish(serviceCIDR(o))
	case *networkingv1.NetworkPolicy:
		return finishPolicy(networkPolicy(o))
	}
	return nil, fmt.Errorf("%T: %w", obj, ErrUnknownKind)
}

// finish turns "converted, unless there are problems" into the two results of Object, keeping nil an untyped nil.
func finish[T model.Object](o T, ps *problems) (model.Object, error) {
	if err := ps.err(); err != nil {
		return nil, err
	}
	return o, nil
}

// finishPolicy is finish for policies: one with problems is returned with them, unless it has no name to go by.
func finishPolicy(p *model.Policy, ps *problems) (model.Object, error) {
	if p == nil || ps.nameless() {
		return nil, ps.err()
	}
	return p, ps.err()
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
