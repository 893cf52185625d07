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

// ConditionPrefix begins the types of all conditions that this program writes.
const ConditionPrefix = "contiv-agent.io/"

// Identity names an object as the API server does: what a writer of Events, conditions or owner references needs.
type Identity struct {
	schema.GroupVersionKind
	Resource        string // plural, as in URLs
	Namespace, Name string
	UID             types.UID
	Generation      int64
	Conditions      []metav1.Condition // the conditions of its status whose type begins with ConditionPrefix, sorted by type
}

// Reference returns the reference by which an Event names the object. It has no resource version: the Event may describe
// another version than the newest.
func (i *Identity) Reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: i.GroupVersion().String(), Kind: i.Kind, Namespace: i.Namespace, Name: i.Name, UID: i.UID}
}

// identify returns the identity of Services, Nodes, and of policies and what they consist of. It is nil for all other
// kinds: no report names them.
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

// conditions returns this program's conditions in an object's status. It skips malformed entries: this program did not
// write them.
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

// identities holds the identities of all followed objects.
type identities struct {
	mu   sync.Mutex
	byID map[model.Ref]*Identity
}

// Identity returns the identity of an object. It is false if the object does not exist or is of a kind that no report
// names. It needs Config.Identities, and is safe for concurrent use.
func (s *Source) Identity(ref model.Ref) (Identity, bool) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	id, ok := s.known.byID[ref]
	if !ok {
		return Identity{}, false
	}
	return *id, true
}

// Identities calls visit for every object of the given kinds, in no order, until visit returns false. It needs
// Config.Identities; visit must not call the Source.
func (s *Source) Identities(visit func(ref model.Ref, id *Identity) bool, kinds ...model.Kind) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	for ref, id := range s.known.byID {
		if slices.Contains(kinds, ref.Kind) && !visit(ref, id) {
			return
		}
	}
}

// step records an object's change, even one that does not matter to a data plane: an object that was deleted and created
// again has a new identity.
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
