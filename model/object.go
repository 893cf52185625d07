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

// Object is one of *Service, *EndpointSlice, *Pod, *Node, *Namespace, *ServiceCIDR, *ServiceAccount, *Policy, *Tier,
// *Profile, *NetworkSet, *HostEndpoint.
type Object interface{ Ref() Ref }

// Ref implements Object.
func (s *Service) Ref() Ref { return Ref{KindService, s.ID.Namespace, s.ID.Name} }

// Ref implements Object.
func (s *EndpointSlice) Ref() Ref { return Ref{KindEndpointSlice, s.ID.Namespace, s.ID.Name} }

// Ref implements Object.
func (p *Pod) Ref() Ref { return Ref{KindPod, p.ID.Namespace, p.ID.Name} }

// Ref implements Object.
func (n *Node) Ref() Ref { return Ref{Kind: KindNode, Name: n.Name} }

// Ref implements Object.
func (n *Namespace) Ref() Ref { return Ref{Kind: KindNamespace, Name: n.Name} }

// Ref implements Object.
func (c *ServiceCIDR) Ref() Ref { return Ref{Kind: KindServiceCIDR, Name: c.Name} }

// Ref implements Object.
func (s *ServiceAccount) Ref() Ref { return Ref{KindServiceAccount, s.Namespace, s.Name} }

// Ref implements Object. The kind is the policy's: NetworkPolicy is Kubernetes', CalicoNetworkPolicy is Calico's.
func (p *Policy) Ref() Ref { return p.ID.Ref() }

// Ref implements Object.
func (t *Tier) Ref() Ref { return Ref{Kind: KindTier, Name: t.Name} }

// Ref implements Object. Profiles of Namespaces and ServiceAccounts are made from those objects; they are not objects
// themselves.
func (p *Profile) Ref() Ref { return Ref{Kind: KindProfile, Name: p.Name} }

// Ref implements Object: NetworkSet if the name has a namespace, GlobalNetworkSet if not.
func (n *NetworkSet) Ref() Ref {
	if namespace, name, ok := strings.Cut(n.Name, "/"); ok {
		return Ref{KindNetworkSet, namespace, name}
	}
	return Ref{Kind: KindGlobalNetworkSet, Name: n.Name}
}

// Ref implements Object. It leaves the node out: the object may move to another node, which changes its ID and not its
// Ref.
func (h *HostEndpoint) Ref() Ref { return Ref{Kind: KindHostEndpoint, Name: h.ID.Name} }

// Compare orders by kind, namespace, name.
func (r Ref) Compare(o Ref) int {
	if c := strings.Compare(string(r.Kind), string(o.Kind)); c != 0 {
		return c
	}
	return compareNames(r.Namespace, r.Name, o.Namespace, o.Name)
}
