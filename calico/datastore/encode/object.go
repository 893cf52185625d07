package encode

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/contiv-agent/contiv-agent/calico"
	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// ErrNotEncoded is the error for objects of kinds that have no keys.
var ErrNotEncoded = errors.New("the datastore has no keys for this kind")

// Object turns an object of Kubernetes or Calico, as an API server has it, into its datastore keys, in the order in which
// Calico's converters write them. raw is a Kubernetes type or unstructured; Encode does not change it.
//
// converted is the result of source/convert for raw. A policy that was refused or that Calico cannot convert is written in the
// form that fails closed, so that every reader isolates its pods. A policy of Calico's is not read again: its value follows from
// converted.Policy. Without a result (the zero value) Encode reads raw alone, as Calico does.
//
// An object without meaning in the datastore (a pod of the host's network) gives no keys and no error. An error says why an
// object that should have keys has none, or not all of them.
//
// A policy that an annotation stages is written as one of Calico's staged kinds, so that no reader enforces it. A kind without a staged one has no
// keys then, and neither has a staged policy whose action is Delete, as in Calico.
func Object(raw runtime.Object, converted convert.Result) ([]calico.KV, error) {
	if p, ok := converted.Object.(*model.Policy); ok && !p.Listed() {
		return encodeStaged(p)
	}
	if converted.Refused() {
		if kv, ok, err := encodeClosed(converted.Object); ok {
			return one(kv, err)
		}
	}
	raw, err := typed(raw, converted.Policy)
	if err != nil {
		return nil, err
	}
	list, err := encodeTyped(raw)
	if errors.Is(err, errPolicyBeyond) && converted.Object != nil {
		kv, _, merr := encodeClosed(converted.Object)
		list, err = one(kv, merr)
	}
	if m, ok := raw.(metav1.Object); ok {
		for i := range list {
			if list[i].Revision == "" {
				list[i].Revision = m.GetResourceVersion()
			}
		}
	}
	return list, err
}

func encodeTyped(raw runtime.Object) ([]calico.KV, error) {
	switch o := raw.(type) {
	case *corev1.Pod:
		return encodePod(o)
	case *corev1.Namespace:
		return encodeNamespace(o)
	case *corev1.ServiceAccount:
		return encodeServiceAccount(o)
	case *corev1.Node:
		return encodeNode(o)
	case *corev1.Service:
		return encodeService(o)
	case *discoveryv1.EndpointSlice:
		return encodeEndpointSlice(o)
	case *networkingv1.NetworkPolicy:
		return one(encodeNetworkPolicy(o))
	case *networkingv1.ServiceCIDR:
		return one(encodeServiceCIDR(o))
	case *adminPolicy:
		return one(o.encodeKV())
	case *v3Object:
		return o.encodeKVs()
	}
	return nil, fmt.Errorf("%T: %w", raw, ErrNotEncoded)
}

// typed converts an unstructured object to its Go type. Of a policy of Calico's, which is read already, it needs the name and the
// version only.
func typed(raw runtime.Object, policy *v3.Policy) (runtime.Object, error) {
	u, ok := raw.(*unstructured.Unstructured)
	if !ok {
		return raw, nil
	}
	gvk := u.GroupVersionKind()
	if policy != nil {
		return defaulted(&v3Object{
			TypeMeta:   metav1.TypeMeta{Kind: gvk.Kind, APIVersion: u.GetAPIVersion()},
			ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), ResourceVersion: u.GetResourceVersion()},
			policy:     policy,
		}), nil
	}
	var into runtime.Object
	switch gvk.Group + "/" + gvk.Kind {
	case "/Pod":
		into = &corev1.Pod{}
	case "/Namespace":
		into = &corev1.Namespace{}
	case "/ServiceAccount":
		into = &corev1.ServiceAccount{}
	case "/Node":
		into = &corev1.Node{}
	case "/Service":
		into = &corev1.Service{}
	case "discovery.k8s.io/EndpointSlice":
		into = &discoveryv1.EndpointSlice{}
	case "networking.k8s.io/ServiceCIDR":
		into = &networkingv1.ServiceCIDR{}
	case "networking.k8s.io/NetworkPolicy":
		into = &networkingv1.NetworkPolicy{}
	case "policy.networking.k8s.io/AdminNetworkPolicy", "policy.networking.k8s.io/BaselineAdminNetworkPolicy",
		"policy.networking.k8s.io/ClusterNetworkPolicy":
		into = &adminPolicy{}
	default:
		if gvk.Group != "projectcalico.org" && gvk.Group != "crd.projectcalico.org" {
			return nil, fmt.Errorf("%s: %w", gvk, ErrNotEncoded)
		}
		into = &v3Object{}
	}
	text, err := json.Marshal(u.Object)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", gvk.Kind, u.GetName(), err)
	}
	if err := kjson.Unmarshal(text, into); err != nil {
		return nil, fmt.Errorf("%s %s: %w", gvk.Kind, u.GetName(), err)
	}
	return defaulted(into), nil
}

// defaulted fills in those of the API server's defaults that matter here.
func defaulted(o runtime.Object) runtime.Object {
	m, ok := o.(metav1.Object)
	switch p := o.(type) {
	case *networkingv1.ServiceCIDR, *adminPolicy:
		ok = false
	case *corev1.Namespace:
		ok = false
		if p.UID == "" { // the object was never in an API server
			p.Labels = merged(map[string]string{corev1.LabelMetadataName: p.Name}, p.Labels)
		}
	case *corev1.Node:
		ok = false
		if len(p.Spec.PodCIDRs) == 0 && p.Spec.PodCIDR != "" {
			p.Spec.PodCIDRs = []string{p.Spec.PodCIDR}
		}
	case *v3Object:
		ok = p.namespaced()
	case *networkingv1.NetworkPolicy:
		if len(p.Spec.PolicyTypes) == 0 {
			p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			if len(p.Spec.Egress) > 0 {
				p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
			}
		}
	}
	if ok && m.GetNamespace() == "" {
		m.SetNamespace(metav1.NamespaceDefault)
	}
	return o
}
