// Package convert turns Kubernetes API objects into model values, and refuses what an API server would refuse.
//
// Invariant: conversion is pure and complete. It either converts a whole object, with the API server's defaults, or refuses
// it with one error that names every wrong field. Equal objects give equal values: lists whose order has no meaning are
// sorted and free of duplicates, and empty lists are nil.
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
// Policies convert as Calico v3.31 converts them for Felix, selectors included. Nodes as peers, which Felix does not have,
// become network sets (model.NodeSet). Calico's API server shows some objects in a second form: a policy knp.default.x, a
// profile kns.x. These convert to nothing, without an error: the original is read instead, and users cannot create objects
// with such names.
//
// A refused policy still exists and must not allow what it was written to deny. Its conversion therefore returns a value
// beside the error, and every part that was not understood fails closed:
//
//   - A rule that allows matches nothing. A rule that denies or passes, or has an unknown action, denies everything of its direction.
//     Domain names as peers and HTTP matches are not understood.
//   - A policy is distrusted if its subject, its direction or its place is not understood. Its allow rules do nothing and its pass rules
//     deny. It applies to everything it could have meant (its namespace; all endpoints), in every direction it could have meant, and
//     before all others of its tier if its place could be any. A NetworkPolicy thus isolates its namespace.
//   - An unknown field of the spec counts as one of the wrong type: its rule is not understood, or, outside of rules, the policy is
//     distrusted.
//   - A Tier whose order is not understood precedes all others. The valid parts of a NetworkSet or HostEndpoint are kept. A refused
//     Profile counts as missing, and a missing profile denies everything.
//
// Where kube-proxy accepts a value that the API server permits (an endpoint port 0, an unreadable trigger time), so does
// this package: it drops the part and keeps the object.
package convert

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
	"github.com/contiv-agent/contiv-agent/source/convert/core"
)

// ErrUnknownKind is the error for types that this package has no model for.
var ErrUnknownKind = errors.New("not a kind the agent reads")

// Result is an object's conversion.
type Result struct {
	// Object is nil for a valid object without meaning to a data plane (an EndpointSlice of host names), and for a refused one
	// of a kind that does not fail closed (see above). It does not point into the object.
	Object model.Object
	// Policy is a policy of Calico's as it is written: Object was made of it, and calico/datastore makes the stored value of it.
	// It is nil for other kinds.
	Policy *v3.Policy
	// Err is an *Error for an object that breaks the API's rules, and ErrUnknownKind for types this package does not read.
	Err error
}

// Refused reports whether the object itself is refused, as opposed to what the data planes here cannot do with it.
func (r *Result) Refused() bool { return r.Err != nil && !check.Unsupported(r.Err) }

// Object is Read for callers that need the value alone.
func Object(obj runtime.Object) (model.Object, error) {
	r := Read(obj)
	return r.Object, r.Err
}

// Read converts obj. It does not change it.
func Read(obj runtime.Object) Result {
	if o, ok := obj.(*unstructured.Unstructured); ok {
		return decodeUnstructured(o)
	}
	ref, ok := Ref(obj)
	if !ok {
		return Result{Err: fmt.Errorf("%T: %w", obj, ErrUnknownKind)}
	}
	o, err := typed(obj, &problems{check.Problems{Ref: ref}})
	return Result{Object: o, Err: err}
}

// problems are those of one object.
type problems struct{ check.Problems }

// finish returns the two results of a conversion: the value, or the problems. It keeps nil an untyped nil.
func finish[T model.Object](o T, ps *check.Problems) (model.Object, error) {
	if err := ps.Err(); err != nil {
		return nil, err
	}
	return o, nil
}

// finishClosed is finish for kinds that fail closed: it returns the value beside the problems, unless the value is nil or
// has no usable name.
func finishClosed[T any, P interface {
	*T
	model.Object
}](o P, ps *problems) (model.Object, error) {
	if o == nil || ps.Nameless() {
		return nil, ps.Err()
	}
	return o, ps.Err()
}

// Ref returns the reference that obj's converted form would have, without converting it; ok is false for types Object does
// not know.
func Ref(obj runtime.Object) (ref model.Ref, ok bool) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		k, ok := unstructuredKind(o)
		if !ok {
			return model.Ref{}, false
		}
		return k.Ref(o.Object), true
	case *corev1.Service:
		return core.Namespaced(model.KindService, &o.ObjectMeta), true
	case *discoveryv1.EndpointSlice:
		return core.Namespaced(model.KindEndpointSlice, &o.ObjectMeta), true
	case *corev1.Pod:
		return core.Namespaced(model.KindPod, &o.ObjectMeta), true
	case *corev1.Node:
		return model.Ref{Kind: model.KindNode, Name: o.Name}, true
	case *corev1.Namespace:
		return model.Ref{Kind: model.KindNamespace, Name: o.Name}, true
	case *networkingv1.ServiceCIDR:
		return model.Ref{Kind: model.KindServiceCIDR, Name: o.Name}, true
	case *corev1.ServiceAccount:
		return core.Namespaced(model.KindServiceAccount, &o.ObjectMeta), true
	case *networkingv1.NetworkPolicy:
		return core.Namespaced(model.Kind(model.KindNetworkPolicy), &o.ObjectMeta), true
	}
	return model.Ref{}, false
}
