package encode

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
)

// DeepCopyObject implements runtime.Object.
func (o *v3Object) DeepCopyObject() runtime.Object {
	c := *o
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (o *v3Object) encodeKVs() ([]calico.KV, error) {
	o.restore()
	if o.shadow() {
		return nil, nil
	}
	switch o.Kind {
	case "NetworkPolicy", "GlobalNetworkPolicy":
		return one(o.encodePolicy(false))
	case "StagedNetworkPolicy", "StagedGlobalNetworkPolicy":
		return one(o.encodePolicy(true))
	case "StagedKubernetesNetworkPolicy":
		return one(o.encodeStagedKubernetes())
	case "Tier":
		return one(o.encodeTier())
	case "NetworkSet", "GlobalNetworkSet":
		return one(o.encodeNetworkSet())
	case "HostEndpoint":
		return one(o.encodeHostEndpoint())
	case "Profile":
		return o.encodeProfile()
	}
	return o.encodeExtra()
}

// shadow reports whether Calico's API server shows this object as a second form of another one that is read itself.
func (o *v3Object) shadow() bool {
	for _, prefix := range []string{"knp.default.", "kanp." + model.TierAdmin + ".", "kbanp." + model.TierBaseline + "."} {
		if strings.HasPrefix(o.Name, prefix) && strings.HasSuffix(o.Kind, "NetworkPolicy") {
			return true
		}
	}
	return o.Kind == "Profile" && (strings.HasPrefix(o.Name, "kns.") || strings.HasPrefix(o.Name, "ksa."))
}

// restore sets the object's metadata from the annotation in which Calico keeps it for custom resources.
func (o *v3Object) restore() {
	const annotation = "projectcalico.org/metadata"
	var kept meta
	text, ok := o.Annotations[annotation]
	if !ok || json.Unmarshal([]byte(text), &kept) != nil {
		return
	}
	o.kept = &kept
	o.Labels, o.Annotations = merged(o.Labels, kept.Labels), merged(o.Annotations, kept.Annotations)
	if delete(o.Annotations, annotation); len(o.Annotations) == 0 {
		o.Annotations = nil
	}
}

// stored reports whether the object is a custom resource as Calico stores it.
func (o *v3Object) stored() bool { return strings.HasPrefix(o.APIVersion, "crd.") }

func (o *v3Object) spec(into any) error {
	if len(o.Spec) == 0 {
		return nil
	}
	if err := kjson.Unmarshal(o.Spec, into); err != nil {
		return fmt.Errorf("%s %s: spec: %w", o.Kind, o.Name, err)
	}
	return nil
}

// encodeProfile writes one of Calico's own profiles. If it is a custom resource, Calico derives another UID for it.
func (o *v3Object) encodeProfile() ([]calico.KV, error) {
	m, err := o.v3Meta()
	p := &v3Profile{Kind: "Profile", APIVersion: apiVersion, Metadata: m}
	if err == nil {
		err = o.spec(&p.Spec)
	}
	if err != nil {
		return nil, err
	}
	list, err := encodeProfile(p)
	if len(list) > 0 {
		list[len(list)-1].V3ResourceVersion = o.ResourceVersion
	}
	return list, err
}

func (o *v3Object) encodePolicy(staged bool) (calico.KV, error) {
	var p v3.Policy
	if o.policy != nil {
		p = *o.policy
	} else if err := o.spec(&p); err != nil {
		return calico.KV{}, err
	}
	if staged && p.StagedAction == "Delete" {
		return calico.KV{}, nil
	}
	name := o.Name
	if !o.stored() && !strings.Contains(name, ".") {
		name = model.TierDefault + "." + name // the stored name
	}
	if o.namespaced() { // a NetworkPolicy has no other fields
		p.GlobalSpec = v3.GlobalSpec{Spec: p.Spec}
	}
	if !staged {
		p.StagedAction = ""
	}
	return encodePolicy(&p, o.Namespace, name, staged)
}

func (o *v3Object) encodeStagedKubernetes() (calico.KV, error) {
	var spec struct {
		networkingv1.NetworkPolicySpec
		StagedAction string `json:"stagedAction"`
	}
	if err := o.spec(&spec); err != nil || spec.StagedAction == "Delete" {
		return calico.KV{}, err
	}
	p, err := fromKubernetes(&spec.NetworkPolicySpec)
	if err != nil {
		return calico.KV{}, fmt.Errorf("%s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
	}
	p.StagedAction = spec.StagedAction
	return encodePolicy(p, o.Namespace, "knp.default."+o.Name, true)
}

func (o *v3Object) encodeTier() (calico.KV, error) {
	var spec datastore.Tier
	if err := o.spec(&spec); err != nil {
		return calico.KV{}, err
	}
	if spec.Order == nil {
		order := 1_000_000.0 // Calico's order for a tier without one
		spec.Order = &order
	}
	if spec.DefaultAction != "Pass" {
		spec.DefaultAction = "Deny"
	}
	return datastore.NewKV(datastore.Key{Kind: datastore.KeyTier, Name: o.Name}, spec)
}

func (o *v3Object) encodeNetworkSet() (calico.KV, error) {
	var spec struct {
		Nets []string `json:"nets"`
	}
	if err := o.spec(&spec); err != nil {
		return calico.KV{}, err
	}
	out, name := datastore.NetworkSet{Labels: o.Labels}, o.Name
	for _, s := range spec.Nets { // a wrong one does not drop the others: source/convert reports it
		if p, ok := v3.ParseNet(s); ok {
			out.Nets = append(out.Nets, p.String())
		}
	}
	if o.namespaced() {
		name = o.Namespace + "/" + o.Name
		out.Labels = merged(o.Labels, map[string]string{model.LabelNamespace: o.Namespace})
		out.ProfileIDs = []string{"kns." + o.Namespace}
	}
	return datastore.NewKV(datastore.Key{Kind: datastore.KeyNetworkSet, Name: name}, out)
}

func (o *v3Object) encodeHostEndpoint() (calico.KV, error) {
	var spec struct {
		Node          string                   `json:"node"`
		InterfaceName string                   `json:"interfaceName"`
		ExpectedIPs   []string                 `json:"expectedIPs"`
		Profiles      []string                 `json:"profiles"`
		Ports         []datastore.EndpointPort `json:"ports"`
	}
	if err := o.spec(&spec); err != nil {
		return calico.KV{}, err
	}
	if spec.Node == "" {
		return calico.KV{}, fmt.Errorf("%s %s: spec.node: is missing", o.Kind, o.Name)
	}
	out := datastore.HostEndpoint{Name: spec.InterfaceName, Labels: o.Labels, ProfileIDs: spec.Profiles}
	for _, s := range spec.ExpectedIPs {
		switch a, err := netip.ParseAddr(s); {
		case err != nil:
		case a.Unmap().Is4():
			out.ExpectedIPv4Addrs = append(out.ExpectedIPv4Addrs, a.Unmap().String())
		default:
			out.ExpectedIPv6Addrs = append(out.ExpectedIPv6Addrs, a.String())
		}
	}
	for _, p := range spec.Ports {
		p.Protocol = datastore.Protocol(strings.ToLower(string(p.Protocol)))
		out.Ports = append(out.Ports, p)
	}
	if d, ok := dscp(o.Annotations); ok {
		out.QoS = &datastore.QoSControls{DSCP: &d}
	}
	return datastore.NewKV(datastore.Key{Kind: datastore.KeyHostEndpoint, Node: spec.Node, Name: o.Name}, out)
}
