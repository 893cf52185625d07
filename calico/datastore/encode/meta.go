package encode

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
)

const apiVersion = "projectcalico.org/v3"

// meta is metav1.ObjectMeta as Kubernetes v1.33 encodes it, the version in Calico v3.31: an unknown creation time is null
// instead of missing. It has no resource version, which is sent beside the value.
type meta struct {
	Name                       string                      `json:"name,omitempty"`
	GenerateName               string                      `json:"generateName,omitempty"`
	Namespace                  string                      `json:"namespace,omitempty"`
	UID                        types.UID                   `json:"uid,omitempty"`
	Generation                 int64                       `json:"generation,omitempty"`
	CreationTimestamp          metav1.Time                 `json:"creationTimestamp"`
	DeletionTimestamp          *metav1.Time                `json:"deletionTimestamp,omitempty"`
	DeletionGracePeriodSeconds *int64                      `json:"deletionGracePeriodSeconds,omitempty"`
	Labels                     map[string]string           `json:"labels,omitempty"`
	Annotations                map[string]string           `json:"annotations,omitempty"`
	OwnerReferences            []metav1.OwnerReference     `json:"ownerReferences,omitempty"`
	Finalizers                 []string                    `json:"finalizers,omitempty"`
	ManagedFields              []metav1.ManagedFieldsEntry `json:"managedFields,omitempty"`
}

func metaOf(m *metav1.ObjectMeta) meta {
	return meta{
		Name: m.Name, GenerateName: m.GenerateName, Namespace: m.Namespace, UID: m.UID,
		Generation: m.Generation, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds, Labels: m.Labels, Annotations: m.Annotations,
		OwnerReferences: m.OwnerReferences, Finalizers: m.Finalizers, ManagedFields: m.ManagedFields,
	}
}

// derivedUID returns the UID of an object made from another one: the same bits in another order, still a random UUID. An
// object without UID (it was never in an API server) has none.
func derivedUID(uid types.UID) (types.UID, error) {
	if uid == "" {
		return "", nil
	}
	b, err := hex.DecodeString(strings.ReplaceAll(string(uid), "-", ""))
	if err != nil || len(b) != 16 {
		return "", fmt.Errorf("metadata.uid: must be a UUID (%q)", uid)
	}
	for i := range b {
		if i != 6 && i != 8 { // these two have the UUID's version and variant
			b[i] = bits.Reverse8(b[i])
		}
	}
	s := hex.EncodeToString(b)
	return types.UID(s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]), nil
}

// v3Profile is projectcalico.org/v3 Profile.
type v3Profile struct {
	Kind       string         `json:"kind,omitempty"`
	APIVersion string         `json:"apiVersion,omitempty"`
	Metadata   meta           `json:"metadata"`
	Spec       v3.ProfileSpec `json:"spec"`
}

// encodeNamespace writes the profile of a namespace's pods: its labels, and rules that allow everything where no policy
// applies.
func encodeNamespace(o *corev1.Namespace) ([]calico.KV, error) {
	allow := []v3.Rule{{Action: "Allow"}}
	list, err := encodeInherited(&o.ObjectMeta, "kns."+o.Name, model.PrefixNamespace, v3.ProfileSpec{Ingress: allow, Egress: allow})
	for i := range list {
		list[i].Revision = o.ResourceVersion + "/"
	}
	return list, err
}

// encodeServiceAccount writes the profile of a service account's pods: its labels, and no rules.
func encodeServiceAccount(o *corev1.ServiceAccount) ([]calico.KV, error) {
	list, err := encodeInherited(&o.ObjectMeta, accountProfile(o.Namespace, o.Name), model.PrefixServiceAccount, v3.ProfileSpec{})
	for i := range list {
		list[i].Revision = "/" + o.ResourceVersion
	}
	return list, err
}

func accountProfile(namespace, name string) string {
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return "ksa." + namespace + "." + name
}

func encodeInherited(m *metav1.ObjectMeta, name, prefix string, spec v3.ProfileSpec) ([]calico.KV, error) {
	uid, err := derivedUID(m.UID)
	if err != nil {
		return nil, err
	}
	spec.LabelsToApply = map[string]string{}
	for k, v := range m.Labels {
		spec.LabelsToApply[prefix+k] = v
	}
	spec.LabelsToApply[prefix+model.LabelName] = m.Name
	return encodeProfile(&v3Profile{
		Kind: "Profile", APIVersion: apiVersion, Spec: spec,
		Metadata: meta{Name: name, UID: uid, CreationTimestamp: m.CreationTimestamp},
	})
}

// encodeProfile writes a profile three times: its labels, if any, its rules, and the whole resource.
func encodeProfile(p *v3Profile) ([]calico.KV, error) {
	name := p.Metadata.Name
	rules := datastore.ProfileRules{}
	var err error
	if rules.InboundRules, err = encodeRules(p.Spec.Ingress, ""); err != nil {
		return nil, err
	}
	if rules.OutboundRules, err = encodeRules(p.Spec.Egress, ""); err != nil {
		return nil, err
	}
	list := []func() (calico.KV, error){
		deferValue(datastore.Key{Kind: datastore.KeyProfileRules, Name: name}, rules),
		deferValue(datastore.Key{Kind: datastore.KeyResource, Type: datastore.ResourceProfiles, Name: name}, p),
	}
	if labels := p.Spec.LabelsToApply; len(labels) > 0 {
		list = append([]func() (calico.KV, error){deferValue(datastore.Key{Kind: datastore.KeyProfileLabels, Name: name}, labels)}, list...)
	}
	return values(list...)
}

// encodeService writes a Service unchanged.
func encodeService(o *corev1.Service) ([]calico.KV, error) {
	kv, err := datastore.NewKV(datastore.Key{Kind: datastore.KeyResource, Type: datastore.ResourceServices, Namespace: o.Namespace, Name: o.Name}, struct {
		Metadata meta                 `json:"metadata"`
		Spec     corev1.ServiceSpec   `json:"spec"`
		Status   corev1.ServiceStatus `json:"status"`
	}{metaOf(&o.ObjectMeta), o.Spec, o.Status})
	kv.V3ResourceVersion = o.ResourceVersion
	return one(kv, err)
}

func encodeServiceCIDR(o *networkingv1.ServiceCIDR) (calico.KV, error) {
	text, err := json.Marshal(datastore.ServiceCIDR{CIDRs: o.Spec.CIDRs})
	return calico.KV{Key: datastore.ServiceCIDRPrefix + o.Name, Value: text}, err
}

// encodeEndpointSlice writes an EndpointSlice unchanged.
func encodeEndpointSlice(o *discoveryv1.EndpointSlice) ([]calico.KV, error) {
	kv, err := datastore.NewKV(datastore.Key{Kind: datastore.KeyResource, Type: datastore.ResourceEndpointSlices, Namespace: o.Namespace, Name: o.Name}, struct {
		Metadata    meta                       `json:"metadata"`
		AddressType discoveryv1.AddressType    `json:"addressType"`
		Endpoints   []discoveryv1.Endpoint     `json:"endpoints"`
		Ports       []discoveryv1.EndpointPort `json:"ports"`
	}{metaOf(&o.ObjectMeta), o.AddressType, o.Endpoints, o.Ports})
	kv.V3ResourceVersion = o.ResourceVersion
	return one(kv, err)
}

// v3Object is an object of projectcalico.org/v3, or its stored form in crd.projectcalico.org/v1.
type v3Object struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
	kept              *meta           // metadata from the annotation
	policy            *v3.Policy      // the spec of a policy that is read already; nil otherwise
}

func (o *v3Object) namespaced() bool {
	switch o.Kind {
	case "NetworkPolicy", "StagedNetworkPolicy", "StagedKubernetesNetworkPolicy", "NetworkSet":
		return true
	}
	return false
}

func merged(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(map[string]string, len(a)+len(b))
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}
