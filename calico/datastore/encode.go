package datastore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// ErrNotEncoded is the error for objects of kinds that have no keys.
var ErrNotEncoded = errors.New("the datastore has no keys for this kind")

// errPolicyBeyond means that Calico v3.31 cannot convert a policy; the model's form is written instead.
var errPolicyBeyond = errors.New("cannot be converted by Calico v3.31")

// Encode turns an object of Kubernetes or Calico, as an API server has it, into its datastore keys, in the order in which
// Calico's converters write them. raw is a Kubernetes type or unstructured; Encode does not change it.
//
// converted is the result of source/convert for raw. A policy that was refused or that Calico cannot convert is written in the
// form that fails closed, so that every reader isolates its pods. A policy of Calico's is not read again: its value follows from
// converted.Policy. Without a result (the zero value) Encode reads raw alone, as Calico does.
//
// An object without meaning in the datastore (a pod of the host's network) gives no keys and no error. An error says why an
// object that should have keys has none, or not all of them.
func Encode(raw runtime.Object, converted convert.Result) ([]calico.KV, error) {
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

func one(kv calico.KV, err error) ([]calico.KV, error) {
	if err != nil || kv.Value == nil {
		return nil, err
	}
	return []calico.KV{kv}, nil
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

// value returns the KV of a value written as JSON.
func value(k Key, v any) (calico.KV, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return calico.KV{}, fmt.Errorf("%s: %w", k, err)
	}
	return calico.KV{Key: k.String(), Value: text}, nil
}

// values joins the KVs of several keys.
func values(list ...func() (calico.KV, error)) ([]calico.KV, error) {
	var out []calico.KV
	for _, make := range list {
		kv, err := make()
		if err != nil {
			return nil, err
		}
		out = append(out, kv)
	}
	return out, nil
}

// deferValue returns a deferred call of value, for values.
func deferValue(k Key, v any) func() (calico.KV, error) {
	return func() (calico.KV, error) { return value(k, v) }
}

// deferText returns the KV of a value written as it is.
func deferText(k Key, v string) func() (calico.KV, error) {
	return func() (calico.KV, error) { return calico.KV{Key: k.String(), Value: []byte(v)}, nil }
}

// Builtin returns the keys that a datastore has without any object: the ready flag, the profile that allows everything, and
// the tiers of Kubernetes' policies. Objects with the same keys replace them.
func Builtin() []calico.KV {
	allow := []v3.Rule{{Action: "Allow"}}
	list, err := encodeProfile(&v3Profile{
		Kind: "Profile", APIVersion: apiVersion, Metadata: meta{Name: "projectcalico-default-allow"},
		Spec: v3.ProfileSpec{Ingress: allow, Egress: allow},
	})
	for _, t := range model.BuiltinTiers() {
		var kv calico.KV
		if err == nil {
			kv, err = value(Key{Kind: KeyTier, Name: t.Name}, Tier{Order: &t.Order.Value, DefaultAction: string(t.DefaultAction)})
		}
		list = append(list, kv)
	}
	if err != nil {
		panic(err) // cannot happen: constants
	}
	return append(list, calico.KV{Key: Key{Kind: KeyReady}.String(), Value: []byte("true")})
}

// Table holds the keys of many objects, and turns an object's change into changes of keys.
type Table struct {
	base map[string]calico.KV   // keys that exist without objects
	keys map[model.Ref][]string // the keys of each object
}

// NewTable returns a table with the keys of base. Objects may replace them; when such an object is removed, the base value
// returns.
func NewTable(base []calico.KV) *Table {
	t := &Table{base: map[string]calico.KV{}, keys: map[model.Ref][]string{}}
	for _, kv := range base {
		t.base[kv.Key] = kv
	}
	return t
}

// Apply sets the keys of ref to list and returns the changes: deletes of keys that ref no longer has, then all of list.
func (t *Table) Apply(ref model.Ref, list []calico.KV) []calico.KV {
	var steps []calico.KV
	for _, k := range t.keys[ref] {
		if slices.ContainsFunc(list, func(kv calico.KV) bool { return kv.Key == k }) {
			continue
		}
		base := t.base[k]
		base.Key = k
		steps = append(steps, base)
	}
	if len(list) == 0 {
		delete(t.keys, ref)
		return steps
	}
	keys := make([]string, len(list))
	for i := range list {
		keys[i] = list[i].Key
	}
	t.keys[ref] = keys
	return append(steps, list...)
}

// Equal reports whether two lists of keys and values are equal, ignoring versions.
func Equal(a, b []calico.KV) bool { return slices.EqualFunc(a, b, calico.KV.Equal) }
