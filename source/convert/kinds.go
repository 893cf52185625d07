package convert

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/contiv-agent/contiv-agent/model"
)

// API groups of policies.
const (
	GroupPolicy    = "policy.networking.k8s.io"
	GroupCalico    = "projectcalico.org"     // what users see where Calico's API server is installed
	GroupCalicoCRD = "crd.projectcalico.org" // the stored form
)

// Kind is a kind of object that this package converts.
type Kind struct {
	schema.GroupVersionKind
	Model      model.Kind // the kind in model references
	Namespaced bool
	blank      func() any // an empty object to decode into
	closed     bool       // a refused object has a value that fails closed
}

// policy reports whether objects of the kind are policies.
func (k *Kind) policy() bool {
	_, ok := model.PolicyKind(k.Model).Info()
	return ok
}

// KindOf returns the kind of an API group; ok is false for kinds this package does not convert. Each kind has one version,
// which the caller compares with the object's.
func KindOf(group, kind string) (k Kind, ok bool) {
	switch group {
	case GroupPolicy:
		k = adminKind(kind)
	case GroupCalico, GroupCalicoCRD:
		k = calicoKind(kind)
	default:
		k = coreKind(group + "/" + kind)
	}
	k.Group, k.Kind = group, kind
	if k.Version == "" {
		k.Version = "v1"
	}
	if group == GroupCalico {
		k.Version = "v3"
	}
	switch k.Model {
	case model.KindTier, model.KindNetworkSet, model.KindGlobalNetworkSet, model.KindHostEndpoint:
		k.closed = true
	default:
		k.closed = k.policy()
	}
	return k, k.blank != nil
}

func coreKind(name string) Kind {
	switch name {
	case "/Service":
		return Kind{Model: model.KindService, Namespaced: true, blank: func() any { return &corev1.Service{} }}
	case "/Pod":
		return Kind{Model: model.KindPod, Namespaced: true, blank: func() any { return &corev1.Pod{} }}
	case "/Node":
		return Kind{Model: model.KindNode, blank: func() any { return &corev1.Node{} }}
	case "/Namespace":
		return Kind{Model: model.KindNamespace, blank: func() any { return &corev1.Namespace{} }}
	case "/ServiceAccount":
		return Kind{Model: model.KindServiceAccount, Namespaced: true, blank: func() any { return &corev1.ServiceAccount{} }}
	case "discovery.k8s.io/EndpointSlice":
		return Kind{Model: model.KindEndpointSlice, Namespaced: true, blank: func() any { return &discoveryv1.EndpointSlice{} }}
	case "networking.k8s.io/ServiceCIDR":
		return Kind{Model: model.KindServiceCIDR, blank: func() any { return &networkingv1.ServiceCIDR{} }}
	case "networking.k8s.io/NetworkPolicy":
		return Kind{Model: model.Kind(model.KindNetworkPolicy), Namespaced: true, blank: func() any { return &networkingv1.NetworkPolicy{} }}
	}
	return Kind{}
}

func adminKind(kind string) Kind {
	k := Kind{Model: model.Kind(kind)}
	k.Version = "v1alpha1"
	switch model.PolicyKind(kind) {
	case model.KindAdminNetworkPolicy:
		k.blank = func() any { return &adminPolicy{} }
	case model.KindBaselinePolicy:
		k.blank = func() any { return &baselinePolicy{} }
	case model.KindClusterNetworkPolicy:
		k.Version = "v1alpha2"
		k.blank = func() any { return &clusterPolicy{} }
	}
	return k
}

func calicoKind(kind string) Kind {
	k := Kind{Model: model.Kind(kind)}
	switch kind {
	case "NetworkPolicy":
		k.Model, k.Namespaced = model.Kind(model.KindCalicoNetworkPolicy), true
		k.blank = func() any { return &calicoPolicy{} }
	case string(model.KindStagedNetworkPolicy):
		k.Namespaced = true
		k.blank = func() any { return &stagedPolicy{} }
	case string(model.KindGlobalNetworkPolicy):
		k.blank = func() any { return &globalPolicy{} }
	case string(model.KindStagedGlobalPolicy):
		k.blank = func() any { return &stagedGlobalPolicy{} }
	case string(model.KindStagedKubernetesPolicy):
		k.Namespaced = true
		k.blank = func() any { return &stagedKubernetesPolicy{} }
	case string(model.KindTier):
		k.blank = func() any { return &calicoTier{} }
	case string(model.KindProfile):
		k.blank = func() any { return &calicoProfile{} }
	case string(model.KindNetworkSet):
		k.Namespaced = true
		k.blank = func() any { return &networkSet{} }
	case string(model.KindGlobalNetworkSet):
		k.blank = func() any { return &networkSet{} }
	case string(model.KindHostEndpoint):
		k.blank = func() any { return &hostEndpoint{} }
	}
	return k
}
