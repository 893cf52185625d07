package model

import "strings"

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
