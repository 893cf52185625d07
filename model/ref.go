package model

import "strings"

// Kind names the kind of an object from a source, in Kubernetes' spelling.
type Kind string

// The kinds a source delivers.
const (
	KindService       Kind = "Service"
	KindEndpointSlice Kind = "EndpointSlice"
	KindPod           Kind = "Pod"
	KindNode          Kind = "Node"
	KindNamespace     Kind = "Namespace"
	KindServiceCIDR   Kind = "ServiceCIDR"
	// The kinds that policies refer to. The kinds of policies themselves are PolicyKinds, converted to Kind.
	KindServiceAccount   Kind = "ServiceAccount"
	KindTier             Kind = "Tier"             // projectcalico.org/v3
	KindProfile          Kind = "Profile"          // projectcalico.org/v3
	KindNetworkSet       Kind = "NetworkSet"       // projectcalico.org/v3
	KindGlobalNetworkSet Kind = "GlobalNetworkSet" // projectcalico.org/v3
	KindHostEndpoint     Kind = "HostEndpoint"     // projectcalico.org/v3
)

// KindManifest is not a kind of object. It names a piece of a manifest (a file, a document, a repeated definition) that
// a source cannot use. Changes of this kind are only refused, or withdrawn.
const KindManifest Kind = "Manifest"

// Ref names an object of any kind. Namespace is "" for cluster-scoped objects.
type Ref struct {
	Kind      Kind
	Namespace string
	Name      string
}

// String is "Kind namespace/name", or "Kind name" for cluster-scoped objects.
func (r Ref) String() string {
	if r.Namespace == "" {
		return string(r.Kind) + " " + r.Name
	}
	return string(r.Kind) + " " + r.Namespace + "/" + r.Name
}

// Compare orders by kind, namespace, name.
func (r Ref) Compare(o Ref) int {
	if c := strings.Compare(string(r.Kind), string(o.Kind)); c != 0 {
		return c
	}
	return compareNames(r.Namespace, r.Name, o.Namespace, o.Name)
}
