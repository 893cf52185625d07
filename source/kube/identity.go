package kube

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv-agent/contiv-agent/model"
)

// ConditionPrefix begins the types of all conditions that are ours.
const ConditionPrefix = "contiv-agent.io/"

// Identity is who an object is to the API server, for those who write about it.
type Identity struct {
	schema.GroupVersionKind
	Resource        string // plural, as in URLs
	Namespace, Name string
	UID             types.UID
	Generation      int64
	Conditions      []metav1.Condition // those of its status whose type begins with ConditionPrefix, by type
}

// Reference is how an Event names the object. It has no version: that of the object may have nothing to do with what is told of it.
func (i *Identity) Reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: i.GroupVersion().String(), Kind: i.Kind, Namespace: i.Namespace, Name: i.Name, UID: i.UID}
}

// identify is the identity of what may be written about: Services, Nodes, and all kinds of policies and what they are made of. Nil of
// anything else.
func identify(obj runtime.Object) *Identity {
	out := &Identity{}
	switch o := obj.(type) {
	case *corev1.Service:
		out.GroupVersionKind, out.Resource = corev1.SchemeGroupVersion.WithKind("Service"), "services"
	case *corev1.Node:
		out.GroupVersionKind, out.Resource = corev1.SchemeGroupVersion.WithKind("Node"), "nodes"
	case *networkingv1.NetworkPolicy:
		out.GroupVersionKind, out.Resource = networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), "networkpolicies"
	case *unstructured.Unstructured:
		out.GroupVersionKind, out.Conditions = o.GroupVersionKind(), conditions(o)
	default:
		return nil
	}
	meta, _ := obj.(metav1.Object)
	out.Namespace, out.Name = meta.GetNamespace(), meta.GetName()
	out.UID, out.Generation = meta.GetUID(), meta.GetGeneration()
	return out
}

// conditions are ours among those of an object's status. What is no condition is left out: it is nothing we have written.
func conditions(o *unstructured.Unstructured) (out []metav1.Condition) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		kind, _ := fields["type"].(string)
		if !strings.HasPrefix(kind, ConditionPrefix) {
			continue
		}
		var c metav1.Condition
		if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c) == nil {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return out
}

// identities are those of all objects that are followed.
type identities struct {
	mu   sync.Mutex
	byID map[model.Ref]*Identity
}

// Identity is who an object is to the API server; false if it is not there, or not of a kind that is written about. It needs
// Config.Identities, and may be called from anywhere.
func (s *Source) Identity(ref model.Ref) (Identity, bool) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	id, ok := s.known.byID[ref]
	if !ok {
		return Identity{}, false
	}
	return *id, true
}

// Identities calls visit for every object of some kinds, in no order, until it returns false. It needs Config.Identities; visit must
// not call the Source.
func (s *Source) Identities(visit func(ref model.Ref, id *Identity) bool, kinds ...model.Kind) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	for ref, id := range s.known.byID {
		if slices.Contains(kinds, ref.Kind) && !visit(ref, id) {
			return
		}
	}
}

// step notes a step of an object, whatever it means to a data plane: one that was deleted and made again is another.
func (k *identities) step(r *resource, before, after *item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case after != nil && after.id != nil:
		if k.byID == nil {
			k.byID = map[model.Ref]*Identity{}
		}
		if after.id.Resource == "" {
			after.id.Resource, _, _ = strings.Cut(r.name, ".")
		}
		k.byID[after.ref] = after.id
	case after == nil && before != nil:
		delete(k.byID, before.ref)
	}
}
