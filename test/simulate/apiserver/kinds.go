package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object with its kind, which encodes itself as JSON.
type Object interface {
	metav1.Object
	GetObjectKind() schema.ObjectKind
}

// plurals are the resources that the server has, by apiVersion and kind.
var plurals = map[string]map[string]string{
	"v1":                                {"Service": "services", "Node": "nodes", "Pod": "pods", "Namespace": "namespaces", "ServiceAccount": "serviceaccounts"},
	"discovery.k8s.io/v1":               {"EndpointSlice": "endpointslices"},
	"networking.k8s.io/v1":              {"NetworkPolicy": "networkpolicies", "ServiceCIDR": "servicecidrs"},
	"policy.networking.k8s.io/v1alpha1": {"AdminNetworkPolicy": "adminnetworkpolicies", "BaselineAdminNetworkPolicy": "baselineadminnetworkpolicies"},
	"policy.networking.k8s.io/v1alpha2": {"ClusterNetworkPolicy": "clusternetworkpolicies"},
	calico: {
		"Tier": "tiers", "NetworkPolicy": "networkpolicies", "GlobalNetworkPolicy": "globalnetworkpolicies", "NetworkSet": "networksets",
		"GlobalNetworkSet": "globalnetworksets", "Profile": "profiles", "HostEndpoint": "hostendpoints",
	},
}

// resource is a resource of a group and version.
type resource struct{ apiVersion, plural string }

// kindOf returns the kind of a resource; "": the server does not have it.
func (r resource) kindOf() string {
	for kind, plural := range plurals[r.apiVersion] {
		if plural == r.plural {
			return kind
		}
	}
	return ""
}

// stored is one version of an object.
type stored struct {
	resource resource
	name     string // namespace/name
	content  string // JSON without a version
	labels   labels.Set
	fields   fields.Set
}

// store encodes an object.
func store(o Object) (*stored, error) {
	apiVersion, kind := o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	plural := plurals[apiVersion][kind]
	if plural == "" {
		return nil, fmt.Errorf("%s %s: the server has no such kind", apiVersion, kind)
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	s := &stored{resource: resource{apiVersion, plural}, name: o.GetNamespace() + "/" + o.GetName(), content: string(text), labels: o.GetLabels()}
	s.fields = fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	if kind == "Service" {
		var service struct{ Spec struct{ ClusterIP string } }
		if err := json.Unmarshal(text, &service); err != nil {
			return nil, err
		}
		s.fields["spec.clusterIP"] = service.Spec.ClusterIP
	}
	if field := map[string]string{calico + " NetworkPolicy": "types", calico + " GlobalNetworkPolicy": "types", "networking.k8s.io/v1 NetworkPolicy": "policyTypes"}[apiVersion+" "+kind]; field != "" {
		if err := s.setTypes(field); err != nil {
			return nil, err
		}
	}
	if !strings.Contains(s.content, metadata) {
		return nil, fmt.Errorf("%s: its JSON has no metadata", s.name)
	}
	return s, nil
}

const (
	calico   = "projectcalico.org/v3"
	metadata = `"metadata":{`
	spec     = `"spec":{`
)

// setTypes sets the types of a policy that has none, as the API servers of Kubernetes and of Calico do when they store one: ingress, except for a policy of
// Calico's with rules of egress alone; and egress, if it has such rules. The fan-out relies on that.
func (s *stored) setTypes(field string) error {
	var policy struct {
		Spec struct{ Types, PolicyTypes, Ingress, Egress []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(s.content), &policy); err != nil || len(policy.Spec.Types)+len(policy.Spec.PolicyTypes) > 0 {
		return err
	}
	types := `"Ingress"`
	switch {
	case len(policy.Spec.Egress) == 0:
	case len(policy.Spec.Ingress) == 0 && field == "types":
		types = `"Egress"`
	default:
		types = `"Ingress","Egress"`
	}
	before, after, _ := strings.Cut(s.content, spec)
	if !strings.HasPrefix(after, "}") {
		after = "," + after
	}
	s.content = fmt.Sprintf("%s%s%q:[%s]%s", before, spec, field, types, after)
	return nil
}

// at writes the object as of a revision.
func (s *stored) at(b *bytes.Buffer, revision int) {
	before, after, _ := strings.Cut(s.content, metadata)
	fmt.Fprintf(b, `%s%s"resourceVersion":"%d",%s`, before, metadata, revision, after)
}

// selection is what a request selects.
type selection struct {
	labels labels.Selector
	fields fields.Selector
}

func selects(byLabels, byFields string) (out selection, err error) {
	if out.labels, err = labels.Parse(byLabels); err == nil {
		out.fields, err = fields.ParseSelector(byFields)
	}
	return out, err
}

// has reports whether an object is selected; nil is not.
func (l selection) has(s *stored) bool {
	return s != nil && l.labels.Matches(s.labels) && l.fields.Matches(s.fields)
}

// discovered is the answer about a group and version; nil: it is not served.
func discovered(apiVersion string) *metav1.APIResourceList {
	if plurals[apiVersion] == nil {
		return nil
	}
	out := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: apiVersion}
	for _, kind := range slices.Sorted(maps.Keys(plurals[apiVersion])) {
		out.APIResources = append(out.APIResources, metav1.APIResource{Name: plurals[apiVersion][kind], Kind: kind, Verbs: metav1.Verbs{"get", "list", "watch"}})
	}
	return out
}
