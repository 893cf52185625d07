package policy

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ends are the places a rule speaks of: where the peer may be, and which ports of the destination.
type ends struct {
	peer  place
	ports []func(*Flow) bool // none: any protocol
}

// match reports whether a flow is between the policy's pod and the peer; the peer of egress is the destination.
func (e ends) match(egress bool) func(*Flow) bool {
	return func(f *Flow) bool {
		at := f.Src
		if egress {
			at = f.Dst
		}
		if !e.peer(at) {
			return false
		}
		return e.ports == nil || slices.ContainsFunc(e.ports, func(m func(*Flow) bool) bool { return m(f) })
	}
}

// readNetworkPolicy reads networking.k8s.io/v1 NetworkPolicy: rules only ever allow, and a pod that is selected for a
// direction may do in it what some rule of some policy allows, and no more. That is the default tier, whose end denies.
func readNetworkPolicy(c *Cluster, o *networkingv1.NetworkPolicy) *policy {
	p := &policy{name: KeyOf(o).String(), order: 1000}
	p.selects = func(q *pod) bool { return q.namespace == o.Namespace && matches(&o.Spec.PodSelector, q.labels) }
	types := o.Spec.PolicyTypes
	if types == nil {
		types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(o.Spec.Egress) > 0 {
			types = append(types, networkingv1.PolicyTypeEgress)
		}
	}
	p.ingress = slices.Contains(types, networkingv1.PolicyTypeIngress)
	p.egress = slices.Contains(types, networkingv1.PolicyTypeEgress)
	for _, r := range o.Spec.Ingress {
		p.in = append(p.in, ruling{allow, c.npEnds(o.Namespace, r.From, r.Ports).match(false)})
	}
	for _, r := range o.Spec.Egress {
		p.out = append(p.out, ruling{allow, c.npEnds(o.Namespace, r.To, r.Ports).match(true)})
	}
	return p
}

// npEnds: no peers means everywhere, no ports means everything.
func (c *Cluster) npEnds(namespace string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) ends {
	e := ends{peer: anywhere}
	if len(peers) > 0 {
		var list []place
		for _, peer := range peers {
			list = append(list, c.npPeer(namespace, peer))
		}
		e.peer = either(list)
	}
	for _, port := range ports {
		e.ports = append(e.ports, c.npPort(port))
	}
	return e
}

func (c *Cluster) npPeer(namespace string, peer networkingv1.NetworkPolicyPeer) place {
	if block := peer.IPBlock; block != nil {
		cidr, err := readNet(block.CIDR)
		except, err2 := readNets(block.Except)
		if err != nil || err2 != nil {
			return nowhere
		}
		return func(a netip.Addr) bool { return cidr.Contains(a) && !inAnyNet(except)(a) }
	}
	return c.podsWhere(func(q *pod) bool {
		if peer.NamespaceSelector == nil && q.namespace != namespace {
			return false
		}
		if peer.NamespaceSelector != nil && !c.inNamespace(peer.NamespaceSelector, q) {
			return false
		}
		return peer.PodSelector == nil || matches(peer.PodSelector, q.labels)
	})
}

// inNamespace reports whether the pod's namespace is selected.
func (c *Cluster) inNamespace(s *metav1.LabelSelector, q *pod) bool {
	return matches(s, c.namespace(q.namespace))
}

func (c *Cluster) npPort(p networkingv1.NetworkPolicyPort) func(*Flow) bool {
	proto := TCP
	if p.Protocol != nil {
		proto = protocolOf(string(*p.Protocol))
	}
	switch {
	case p.Port == nil:
		return func(f *Flow) bool { return f.Proto == proto }
	case p.Port.Type == intstr.String:
		return c.namedPort(p.Port.StrVal, func(q Protocol) bool { return q == proto })
	}
	first, last := uint16(p.Port.IntVal), uint16(p.Port.IntVal)
	if p.EndPort != nil {
		last = uint16(*p.EndPort)
	}
	return portBetween(proto, first, last)
}

func portBetween(proto Protocol, first, last uint16) func(*Flow) bool {
	return func(f *Flow) bool { return f.Proto == proto && first <= f.DstPort && f.DstPort <= last }
}

// namedPort resolves a name at the pod the flow goes to: only pods have names for ports.
func (c *Cluster) namedPort(name string, proto func(Protocol) bool) func(*Flow) bool {
	return func(f *Flow) bool {
		to := c.at[f.Dst]
		return to != nil && slices.ContainsFunc(to.ports, func(p port) bool {
			return p.name == name && p.proto == f.Proto && p.number == f.DstPort && proto(p.proto)
		})
	}
}

// readSubject reads pods of namespaces, or some pods of namespaces; one of the two. If it finds neither, the policy applies
// to no pod, and is refused with an error.
func (c *Cluster) readSubject(s Subject) func(*pod) bool {
	return func(q *pod) bool {
		switch {
		case s.Namespaces != nil:
			return c.inNamespace(s.Namespaces, q)
		case s.Pods != nil:
			return c.inNamespace(&s.Pods.NamespaceSelector, q) && matches(&s.Pods.PodSelector, q.labels)
		}
		return false
	}
}

// readAdmin reads AdminNetworkPolicy and BaselineAdminNetworkPolicy.
func readAdmin(c *Cluster, key Key, spec AdminSpec) *policy {
	p := &policy{name: key.String(), selects: c.readSubject(spec.Subject), ingress: len(spec.Ingress) > 0, egress: len(spec.Egress) > 0}
	if spec.Priority != nil {
		p.order = float64(*spec.Priority)
	}
	for _, r := range spec.Ingress {
		p.in = append(p.in, c.adminRule(r.Action, r.From, c.adminPorts(r.Ports), false))
	}
	for _, r := range spec.Egress {
		p.out = append(p.out, c.adminRule(r.Action, r.To, c.adminPorts(r.Ports), true))
	}
	return p
}

// readCluster reads ClusterNetworkPolicy.
func readCluster(c *Cluster, o *ClusterNetworkPolicy) *policy {
	p := &policy{
		name: KeyOf(o).String(), order: float64(o.Spec.Priority), selects: c.readSubject(o.Spec.Subject),
		ingress: len(o.Spec.Ingress) > 0, egress: len(o.Spec.Egress) > 0,
	}
	for _, r := range o.Spec.Ingress {
		p.in = append(p.in, c.adminRule(r.Action, r.From, c.clusterPorts(r.Protocols), false))
	}
	for _, r := range o.Spec.Egress {
		p.out = append(p.out, c.adminRule(r.Action, r.To, c.clusterPorts(r.Protocols), true))
	}
	return p
}

// adminRule is a rule of either kind. One that has a peer nobody understands fails closed: if it would allow it matches
// nothing, otherwise it denies everything.
func (c *Cluster) adminRule(verb string, peers []AdminPeer, ports []func(*Flow) bool, egress bool) ruling {
	act := map[string]action{"Allow": allow, "Accept": allow, "Deny": deny, "Pass": pass}[verb]
	var list []place
	for _, peer := range peers {
		at, understood := c.adminPeer(peer)
		switch {
		case understood:
			list = append(list, at)
		case act == allow:
			return ruling{allow, func(*Flow) bool { return false }}
		default:
			return ruling{deny, func(*Flow) bool { return true }}
		}
	}
	return ruling{act, ends{either(list), ports}.match(egress)}
}

// adminPeer is where a peer is. Domain names are not resolved here.
func (c *Cluster) adminPeer(peer AdminPeer) (at place, understood bool) {
	switch {
	case peer.Namespaces != nil:
		return c.podsWhere(func(q *pod) bool { return c.inNamespace(peer.Namespaces, q) }), true
	case peer.Pods != nil:
		return c.podsWhere(func(q *pod) bool {
			return c.inNamespace(&peer.Pods.NamespaceSelector, q) && matches(&peer.Pods.PodSelector, q.labels)
		}), true
	case peer.Nodes != nil:
		return func(a netip.Addr) bool {
			for _, n := range c.nodes {
				if matches(peer.Nodes, n.labels) && slices.Contains(n.addrs, a) {
					return true
				}
			}
			return false
		}, true
	case peer.Networks != nil:
		nets, err := readNets(peer.Networks)
		return inAnyNet(nets), err == nil
	}
	return nil, false
}

func (c *Cluster) adminPorts(list *[]AdminPort) []func(*Flow) bool {
	if list == nil {
		return nil
	}
	out := []func(*Flow) bool{}
	for _, p := range *list {
		switch {
		case p.PortNumber != nil:
			out = append(out, portBetween(protocolOf(p.PortNumber.Protocol), uint16(p.PortNumber.Port), uint16(p.PortNumber.Port)))
		case p.PortRange != nil:
			out = append(out, portBetween(protocolOf(p.PortRange.Protocol), uint16(p.PortRange.Start), uint16(p.PortRange.End)))
		case p.NamedPort != nil:
			out = append(out, c.namedPort(*p.NamedPort, func(Protocol) bool { return true }))
		}
	}
	return out
}

func (c *Cluster) clusterPorts(list []ClusterProtocol) []func(*Flow) bool {
	var out []func(*Flow) bool
	for _, p := range list {
		switch {
		case p.TCP != nil:
			out = append(out, clusterL4(TCP, p.TCP))
		case p.UDP != nil:
			out = append(out, clusterL4(UDP, p.UDP))
		case p.SCTP != nil:
			out = append(out, clusterL4(SCTP, p.SCTP))
		default:
			out = append(out, c.namedPort(p.DestinationNamedPort, func(Protocol) bool { return true }))
		}
	}
	return out
}

func clusterL4(proto Protocol, l4 *ClusterL4) func(*Flow) bool {
	at := l4.DestinationPort
	if at.Range != nil {
		return portBetween(proto, uint16(at.Range.Start), uint16(at.Range.End))
	}
	return portBetween(proto, uint16(at.Number), uint16(at.Number))
}
