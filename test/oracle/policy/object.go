package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Object is an object of a cluster, as an API server shows it: one of the types of this package, or of k8s.io/api.
type Object interface {
	metav1.Object
	GetObjectKind() schema.ObjectKind
}

// The groups of kinds.
const (
	GroupCore     = "v1"
	GroupDiscover = "discovery.k8s.io/v1"
	GroupNetwork  = "networking.k8s.io/v1"
	GroupAdmin    = "policy.networking.k8s.io/v1alpha1"
	GroupCluster  = "policy.networking.k8s.io/v1alpha2"
	GroupCalico   = "projectcalico.org/v3"
)

// kinds makes an empty object of each kind, by apiVersion and kind.
func Blank(apiVersion, kind string) Object {
	switch apiVersion + " " + kind {
	case GroupCore + " Node":
		return &corev1.Node{}
	case GroupCore + " Namespace":
		return &corev1.Namespace{}
	case GroupCore + " Pod":
		return &corev1.Pod{}
	case GroupCore + " Service":
		return &corev1.Service{}
	case GroupCore + " ServiceAccount":
		return &corev1.ServiceAccount{}
	case GroupDiscover + " EndpointSlice":
		return &discoveryv1.EndpointSlice{}
	case GroupNetwork + " NetworkPolicy":
		return &networkingv1.NetworkPolicy{}
	case GroupAdmin + " AdminNetworkPolicy":
		return &AdminNetworkPolicy{}
	case GroupAdmin + " BaselineAdminNetworkPolicy":
		return &BaselineAdminNetworkPolicy{}
	case GroupCluster + " ClusterNetworkPolicy":
		return &ClusterNetworkPolicy{}
	case GroupCalico + " Tier":
		return &CalicoTier{}
	case GroupCalico + " NetworkPolicy", GroupCalico + " GlobalNetworkPolicy":
		return &CalicoPolicy{}
	case GroupCalico + " NetworkSet", GroupCalico + " GlobalNetworkSet":
		return &CalicoNetworkSet{}
	case GroupCalico + " Profile":
		return &CalicoProfile{}
	case GroupCalico + " HostEndpoint":
		return &CalicoHostEndpoint{}
	}
	return nil
}

// Key names an object: apiVersion, kind, namespace and name.
type Key struct{ APIVersion, Kind, Namespace, Name string }

// String is "Kind namespace/name (apiVersion)".
func (k Key) String() string {
	name := k.Name
	if k.Namespace != "" {
		name = k.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s (%s)", k.Kind, name, k.APIVersion)
}

// KeyOf names o.
func KeyOf(o Object) Key {
	gvk := o.GetObjectKind().GroupVersionKind()
	return Key{gvk.GroupVersion().String(), gvk.Kind, o.GetNamespace(), o.GetName()}
}

// Sort puts objects in the order of their keys.
func Sort(list []Object) {
	slices.SortFunc(list, func(a, b Object) int { return CompareKeys(KeyOf(a), KeyOf(b)) })
}

// CompareKeys orders keys by their texts.
func CompareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.APIVersion, b.APIVersion), strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// TypeOf returns the type that an object carries.
func TypeOf(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// Meta returns the metadata of an object.
func Meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

// ToTree is o as JSON sees it, without the fields that are always there and say nothing.
func ToTree(o Object) (map[string]any, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var t map[string]any
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, err
	}
	prune(t)
	return t, nil
}

func prune(t map[string]any) {
	if meta, _ := t["metadata"].(map[string]any); meta != nil && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	if status, _ := t["status"].(map[string]any); status != nil {
		if lb, _ := status["loadBalancer"].(map[string]any); len(lb) == 0 {
			delete(status, "loadBalancer")
		}
		for k, v := range status {
			if m, isMap := v.(map[string]any); isMap && k != "loadBalancer" {
				delete(status, k)
				_ = m
			}
		}
		if len(status) == 0 {
			delete(t, "status")
		}
	}
}

// FromTree is the reverse of tree: nil if it is no object.
func FromTree(t map[string]any) Object {
	apiVersion, _ := t["apiVersion"].(string)
	kind, _ := t["kind"].(string)
	o := Blank(apiVersion, kind)
	if o == nil {
		return nil
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil
	}
	if err := json.Unmarshal(text, o); err != nil {
		return nil
	}
	return o
}

// YAML is a manifest of the objects.
func YAML(list []Object) string {
	var out strings.Builder
	for _, o := range list {
		t, err := ToTree(o)
		if err != nil {
			return err.Error()
		}
		text, err := yaml.Marshal(t)
		if err != nil {
			return err.Error()
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.String()
}
