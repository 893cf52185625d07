package policy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// addPolicy makes a policy of some kind.
func (w *World) addPolicy() Object {
	kinds := []func() Object{w.addNetworkPolicy, w.addNetworkPolicy}
	if w.kinds.Admin {
		kinds = append(kinds, w.addAdmin, w.addBaseline)
	}
	if w.kinds.Cluster {
		kinds = append(kinds, w.addCluster)
	}
	if w.kinds.Calico {
		kinds = append(kinds, w.addCalico, w.addCalico)
	}
	return pick(w, kinds...)()
}

// again draws the rules of a policy anew.
func (w *World) again(o Object) Object {
	switch o := o.(type) {
	case *networkingv1.NetworkPolicy:
		return edit(w, o, func(p *networkingv1.NetworkPolicy) { p.Spec = w.networkPolicySpec() })
	case *AdminNetworkPolicy:
		return edit(w, o, func(p *AdminNetworkPolicy) { p.Spec = w.adminSpec(p.Spec.Priority) })
	case *BaselineAdminNetworkPolicy:
		return edit(w, o, func(p *BaselineAdminNetworkPolicy) { p.Spec = w.adminSpec(nil) })
	case *ClusterNetworkPolicy:
		return edit(w, o, func(p *ClusterNetworkPolicy) { p.Spec = w.clusterSpec(p.Spec.Priority) })
	case *CalicoPolicy:
		return edit(w, o, func(p *CalicoPolicy) { p.Spec = w.calicoSpec(p.Namespace) })
	}
	return nil
}

func (w *World) addNetworkPolicy() Object {
	ns := pick(w, objectsOf[*corev1.Namespace](w)...)
	return w.putObject(&networkingv1.NetworkPolicy{
		TypeMeta: typed(groupNetwork, "NetworkPolicy"), ObjectMeta: named(ns.Name, w.name("np"), nil), Spec: w.networkPolicySpec(),
	})
}

func (w *World) networkPolicySpec() networkingv1.NetworkPolicySpec {
	s := networkingv1.NetworkPolicySpec{PodSelector: w.selector()}
	switch w.rng.IntN(6) {
	case 0:
		s.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	case 1:
		s.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	case 2:
		s.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	}
	if !w.chance(3) {
		for range w.rng.IntN(4) {
			s.Ingress = append(s.Ingress, networkingv1.NetworkPolicyIngressRule{From: w.npPeers(), Ports: w.npPorts()})
		}
	}
	if w.chance(2) {
		for range w.rng.IntN(4) {
			s.Egress = append(s.Egress, networkingv1.NetworkPolicyEgressRule{To: w.npPeers(), Ports: w.npPorts()})
		}
	}
	return s
}

func (w *World) npPeers() []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for range w.rng.IntN(4) {
		var p networkingv1.NetworkPolicyPeer
		switch w.rng.IntN(4) {
		case 0:
			p.PodSelector = ptr(w.selector())
		case 1:
			p.NamespaceSelector = ptr(w.namespaceSelector())
		case 2:
			p.PodSelector, p.NamespaceSelector = ptr(w.selector()), ptr(w.namespaceSelector())
		default:
			net := w.network()
			p.IPBlock = &networkingv1.IPBlock{CIDR: net.String()}
			for range w.rng.IntN(3) {
				if part, ok := w.part(net); ok {
					p.IPBlock.Except = append(p.IPBlock.Except, part.String())
				}
			}
		}
		out = append(out, p)
	}
	return out
}

func (w *World) npPorts() []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	if !w.chance(3) {
		return nil
	}
	for range 1 + w.rng.IntN(2) {
		var p networkingv1.NetworkPolicyPort
		if !w.chance(3) {
			p.Protocol = ptr(pick(w, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP))
		}
		switch w.rng.IntN(5) {
		case 0: // all ports of the protocol
		case 1:
			p.Port = ptr(intstr.FromString(pick(w, portNames[:]...)))
		case 2:
			first, last := w.portsFrom()
			p.Port, p.EndPort = ptr(intstr.FromInt32(int32(first))), ptr(int32(last))
		default:
			p.Port = ptr(intstr.FromInt32(int32(w.portNumber())))
		}
		out = append(out, p)
	}
	return out
}

func (w *World) addAdmin() Object {
	return w.putObject(&AdminNetworkPolicy{
		TypeMeta: typed(groupAdmin, "AdminNetworkPolicy"), ObjectMeta: named("", w.name("anp"), nil), Spec: w.adminSpec(w.priority()),
	})
}

// priority is one that no other policy of the kinds with priorities has: who comes first among equals nobody promises.
func (w *World) priority() *int32 {
	taken := map[int32]bool{}
	for _, p := range objectsOf[*AdminNetworkPolicy](w) {
		taken[*p.Spec.Priority] = true
	}
	for _, p := range objectsOf[*ClusterNetworkPolicy](w) {
		taken[p.Spec.Priority] = true
	}
	for {
		if n := pick[int32](w, 0, 1, 2, 9, 10, 50, 99, 100, 500, 999, 1000, int32(w.rng.IntN(1000))); !taken[n] {
			return &n
		}
	}
}

func (w *World) addBaseline() Object {
	return w.putObject(&BaselineAdminNetworkPolicy{
		TypeMeta: typed(groupAdmin, "BaselineAdminNetworkPolicy"), ObjectMeta: named("", "default", nil), Spec: w.adminSpec(nil),
	})
}

// adminSpec is the spec of a baseline policy if it has no priority: it cannot pass.
func (w *World) adminSpec(priority *int32) AdminSpec {
	s := AdminSpec{Priority: priority, Subject: w.subject()}
	actions := []string{"Allow", "Deny", "Pass"}
	if priority == nil {
		actions = actions[:2]
	}
	for range w.rng.IntN(4) {
		s.Ingress = append(s.Ingress, AdminRule{Action: pick(w, actions...), From: w.adminPeers(false, "Deny"), Ports: w.adminPorts(true)})
	}
	for range w.rng.IntN(4) {
		r := AdminRule{Action: pick(w, actions...)}
		r.To = w.adminPeers(true, r.Action)
		if priority == nil {
			for i := range r.To {
				if r.To[i].DomainNames != nil { // not in baseline policies
					r.To[i] = AdminPeer{Networks: []string{w.network().String()}}
				}
			}
		}
		r.Ports = w.adminPorts(onlyPods(r.To))
		s.Egress = append(s.Egress, r)
	}
	return s
}

func (w *World) subject() Subject {
	if w.chance(2) {
		return Subject{Namespaces: ptr(w.namespaceSelector())}
	}
	return Subject{Pods: &NamespacedPod{NamespaceSelector: w.namespaceSelector(), PodSelector: w.selector()}}
}

func (w *World) adminPeers(egress bool, action string) []AdminPeer {
	var out []AdminPeer
	for range 1 + w.rng.IntN(2) {
		kinds := 2
		if egress {
			kinds = 6
		}
		var p AdminPeer
		switch w.rng.IntN(kinds) {
		case 0:
			p.Namespaces = ptr(w.namespaceSelector())
		case 1, 2:
			p.Pods = &NamespacedPod{NamespaceSelector: w.namespaceSelector(), PodSelector: w.selector()}
		case 3:
			p.Nodes = ptr(w.selector())
		default:
			p.Networks = w.networks()
			if (action == "Allow" || action == "Accept") && w.chance(8) {
				p = AdminPeer{DomainNames: []string{"example.com"}}
			}
		}
		out = append(out, p)
	}
	return out
}

// onlyPods reports that a rule may have named ports: nodes and networks have none.
func onlyPods(peers []AdminPeer) bool {
	for _, p := range peers {
		if p.Namespaces == nil && p.Pods == nil {
			return false
		}
	}
	return true
}

func (w *World) adminPorts(names bool) *[]AdminPort {
	if w.chance(2) {
		return nil
	}
	var out []AdminPort
	for range 1 + w.rng.IntN(2) {
		proto := pick(w, "TCP", "TCP", "UDP", "SCTP")
		switch w.rng.IntN(3) {
		case 0:
			first, last := w.portsFrom()
			out = append(out, AdminPort{PortRange: &AdminPortRange{proto, int32(first), int32(last)}})
		case 1:
			if names {
				out = append(out, AdminPort{NamedPort: ptr(pick(w, portNames[:]...))})
				continue
			}
			fallthrough
		default:
			out = append(out, AdminPort{PortNumber: &AdminPortNumber{proto, int32(w.portNumber())}})
		}
	}
	return &out
}

func (w *World) addCluster() Object {
	return w.putObject(&ClusterNetworkPolicy{
		TypeMeta: typed(groupCluster, "ClusterNetworkPolicy"), ObjectMeta: named("", w.name("cnp"), nil), Spec: w.clusterSpec(*w.priority()),
	})
}

func (w *World) clusterSpec(priority int32) ClusterSpec {
	s := ClusterSpec{Tier: pick(w, "Admin", "Baseline"), Priority: priority, Subject: w.subject()}
	for i := range w.rng.IntN(4) {
		s.Ingress = append(s.Ingress, ClusterRule{
			Name: fmt.Sprint("in ", i), Action: pick(w, "Accept", "Deny", "Pass"), From: w.adminPeers(false, "Deny"), Protocols: w.clusterProtocols(true),
		})
	}
	for range w.rng.IntN(4) {
		r := ClusterRule{Action: pick(w, "Accept", "Deny", "Pass")}
		r.To = w.adminPeers(true, r.Action)
		r.Protocols = w.clusterProtocols(onlyPods(r.To))
		s.Egress = append(s.Egress, r)
	}
	return s
}

func (w *World) clusterProtocols(names bool) []ClusterProtocol {
	var out []ClusterProtocol
	if !w.chance(3) {
		return nil
	}
	for range 1 + w.rng.IntN(2) {
		var l4 ClusterL4
		switch w.rng.IntN(4) {
		case 0:
			first, last := w.portsFrom()
			l4.DestinationPort = &ClusterPort{Range: &ClusterPortRange{int32(first), int32(last)}}
		case 1:
			if names {
				out = append(out, ClusterProtocol{DestinationNamedPort: pick(w, portNames[:]...)})
				continue
			}
			fallthrough
		default:
			l4.DestinationPort = &ClusterPort{Number: int32(w.portNumber())}
		}
		out = append(out, pick(w, ClusterProtocol{TCP: &l4}, ClusterProtocol{TCP: &l4}, ClusterProtocol{UDP: &l4}, ClusterProtocol{SCTP: &l4}))
	}
	return out
}
