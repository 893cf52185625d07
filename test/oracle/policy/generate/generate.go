package generate

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// addPolicy makes a policy of some kind.
func (w *World) addPolicy() policy.Object {
	kinds := []func() policy.Object{w.addNetworkPolicy, w.addNetworkPolicy}
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
func (w *World) again(o policy.Object) policy.Object {
	switch o := o.(type) {
	case *networkingv1.NetworkPolicy:
		return edit(w, o, func(p *networkingv1.NetworkPolicy) { p.Spec = w.networkPolicySpec() })
	case *policy.AdminNetworkPolicy:
		return edit(w, o, func(p *policy.AdminNetworkPolicy) { p.Spec = w.adminSpec(p.Spec.Priority) })
	case *policy.BaselineAdminNetworkPolicy:
		return edit(w, o, func(p *policy.BaselineAdminNetworkPolicy) { p.Spec = w.adminSpec(nil) })
	case *policy.ClusterNetworkPolicy:
		return edit(w, o, func(p *policy.ClusterNetworkPolicy) { p.Spec = w.clusterSpec(p.Spec.Priority) })
	case *policy.CalicoPolicy:
		return edit(w, o, func(p *policy.CalicoPolicy) { p.Spec = w.calicoSpec(p.Namespace) })
	}
	return nil
}

func (w *World) addNetworkPolicy() policy.Object {
	ns := pick(w, objectsOf[*corev1.Namespace](w)...)
	return w.putObject(&networkingv1.NetworkPolicy{
		TypeMeta: policy.TypeOf(policy.GroupNetwork, "NetworkPolicy"), ObjectMeta: policy.Meta(ns.Name, w.name("np"), nil), Spec: w.networkPolicySpec(),
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

func (w *World) addAdmin() policy.Object {
	return w.putObject(&policy.AdminNetworkPolicy{
		TypeMeta: policy.TypeOf(policy.GroupAdmin, "AdminNetworkPolicy"), ObjectMeta: policy.Meta("", w.name("anp"), nil), Spec: w.adminSpec(w.priority()),
	})
}

// priority is one that no other policy of the kinds with priorities has: who comes first among equals nobody promises.
func (w *World) priority() *int32 {
	taken := map[int32]bool{}
	for _, p := range objectsOf[*policy.AdminNetworkPolicy](w) {
		taken[*p.Spec.Priority] = true
	}
	for _, p := range objectsOf[*policy.ClusterNetworkPolicy](w) {
		taken[p.Spec.Priority] = true
	}
	for {
		if n := pick[int32](w, 0, 1, 2, 9, 10, 50, 99, 100, 500, 999, 1000, int32(w.rng.IntN(1000))); !taken[n] {
			return &n
		}
	}
}

func (w *World) addBaseline() policy.Object {
	return w.putObject(&policy.BaselineAdminNetworkPolicy{
		TypeMeta: policy.TypeOf(policy.GroupAdmin, "BaselineAdminNetworkPolicy"), ObjectMeta: policy.Meta("", "default", nil), Spec: w.adminSpec(nil),
	})
}

// adminSpec is the spec of a baseline policy if it has no priority: it cannot pass.
func (w *World) adminSpec(priority *int32) policy.AdminSpec {
	s := policy.AdminSpec{Priority: priority, Subject: w.subject()}
	actions := []string{"Allow", "Deny", "Pass"}
	if priority == nil {
		actions = actions[:2]
	}
	for range w.rng.IntN(4) {
		s.Ingress = append(s.Ingress, policy.AdminRule{Action: pick(w, actions...), From: w.adminPeers(false, "Deny"), Ports: w.adminPorts(true)})
	}
	for range w.rng.IntN(4) {
		r := policy.AdminRule{Action: pick(w, actions...)}
		r.To = w.adminPeers(true, r.Action)
		if priority == nil {
			for i := range r.To {
				if r.To[i].DomainNames != nil { // not in baseline policies
					r.To[i] = policy.AdminPeer{Networks: []string{w.network().String()}}
				}
			}
		}
		r.Ports = w.adminPorts(onlyPods(r.To))
		s.Egress = append(s.Egress, r)
	}
	return s
}

func (w *World) subject() policy.Subject {
	if w.chance(2) {
		return policy.Subject{Namespaces: ptr(w.namespaceSelector())}
	}
	return policy.Subject{Pods: &policy.NamespacedPod{NamespaceSelector: w.namespaceSelector(), PodSelector: w.selector()}}
}

func (w *World) adminPeers(egress bool, action string) []policy.AdminPeer {
	var out []policy.AdminPeer
	for range 1 + w.rng.IntN(2) {
		kinds := 2
		if egress {
			kinds = 6
		}
		var p policy.AdminPeer
		switch w.rng.IntN(kinds) {
		case 0:
			p.Namespaces = ptr(w.namespaceSelector())
		case 1, 2:
			p.Pods = &policy.NamespacedPod{NamespaceSelector: w.namespaceSelector(), PodSelector: w.selector()}
		case 3:
			p.Nodes = ptr(w.selector())
		default:
			p.Networks = w.networks()
			if (action == "Allow" || action == "Accept") && w.chance(8) {
				p = policy.AdminPeer{DomainNames: []string{"example.com"}}
			}
		}
		out = append(out, p)
	}
	return out
}

// onlyPods reports that a rule may have named ports: nodes and networks have none.
func onlyPods(peers []policy.AdminPeer) bool {
	for _, p := range peers {
		if p.Namespaces == nil && p.Pods == nil {
			return false
		}
	}
	return true
}

func (w *World) adminPorts(names bool) *[]policy.AdminPort {
	if w.chance(2) {
		return nil
	}
	var out []policy.AdminPort
	for range 1 + w.rng.IntN(2) {
		proto := pick(w, "TCP", "TCP", "UDP", "SCTP")
		switch w.rng.IntN(3) {
		case 0:
			first, last := w.portsFrom()
			out = append(out, policy.AdminPort{PortRange: &policy.AdminPortRange{Protocol: proto, Start: int32(first), End: int32(last)}})
		case 1:
			if names {
				out = append(out, policy.AdminPort{NamedPort: ptr(pick(w, portNames[:]...))})
				continue
			}
			fallthrough
		default:
			out = append(out, policy.AdminPort{PortNumber: &policy.AdminPortNumber{Protocol: proto, Port: int32(w.portNumber())}})
		}
	}
	return &out
}

func (w *World) addCluster() policy.Object {
	return w.putObject(&policy.ClusterNetworkPolicy{
		TypeMeta: policy.TypeOf(policy.GroupCluster, "ClusterNetworkPolicy"), ObjectMeta: policy.Meta("", w.name("cnp"), nil), Spec: w.clusterSpec(*w.priority()),
	})
}

func (w *World) clusterSpec(priority int32) policy.ClusterSpec {
	s := policy.ClusterSpec{Tier: pick(w, "Admin", "Baseline"), Priority: priority, Subject: w.subject()}
	for i := range w.rng.IntN(4) {
		s.Ingress = append(s.Ingress, policy.ClusterRule{
			Name: fmt.Sprint("in ", i), Action: pick(w, "Accept", "Deny", "Pass"), From: w.adminPeers(false, "Deny"), Protocols: w.clusterProtocols(true),
		})
	}
	for range w.rng.IntN(4) {
		r := policy.ClusterRule{Action: pick(w, "Accept", "Deny", "Pass")}
		r.To = w.adminPeers(true, r.Action)
		r.Protocols = w.clusterProtocols(onlyPods(r.To))
		s.Egress = append(s.Egress, r)
	}
	return s
}

func (w *World) clusterProtocols(names bool) []policy.ClusterProtocol {
	var out []policy.ClusterProtocol
	if !w.chance(3) {
		return nil
	}
	for range 1 + w.rng.IntN(2) {
		var l4 policy.ClusterL4
		switch w.rng.IntN(4) {
		case 0:
			first, last := w.portsFrom()
			l4.DestinationPort = &policy.ClusterPort{Range: &policy.ClusterPortRange{Start: int32(first), End: int32(last)}}
		case 1:
			if names {
				out = append(out, policy.ClusterProtocol{DestinationNamedPort: pick(w, portNames[:]...)})
				continue
			}
			fallthrough
		default:
			l4.DestinationPort = &policy.ClusterPort{Number: int32(w.portNumber())}
		}
		out = append(out, pick(w, policy.ClusterProtocol{TCP: &l4}, policy.ClusterProtocol{TCP: &l4}, policy.ClusterProtocol{UDP: &l4}, policy.ClusterProtocol{SCTP: &l4}))
	}
	return out
}

// NewWorld returns a cluster with nodes, namespaces, pods and policies.
func NewWorld(seed uint64, kinds Kinds) *World {
	w := &World{rng: rand.New(rand.NewPCG(seed, 1)), kinds: kinds, objects: map[policy.Key]policy.Object{}, taken: map[string][]int{}}
	for i := range 1 + w.rng.IntN(maxNodes) {
		w.addNode(i + 1)
	}
	for _, name := range []string{"prod", "dev", "ops"}[:1+w.rng.IntN(3)] {
		w.putObject(w.namespace(name))
		for _, account := range []string{"default", "web"} {
			w.putObject(&corev1.ServiceAccount{TypeMeta: policy.TypeOf(policy.GroupCore, "ServiceAccount"), ObjectMeta: policy.Meta(name, account, w.labels())})
		}
	}
	for range 2 + w.rng.IntN(maxPods-1) {
		w.addPod()
	}
	for range w.rng.IntN(3) {
		w.addService()
	}
	for range w.rng.IntN(3) {
		w.addCalicoPlace()
	}
	if kinds.Hosts && kinds.Calico && w.chance(3) {
		w.addHosts()
	}
	for range 2 + w.rng.IntN(maxPolicies-1) {
		w.addPolicy()
	}
	return w
}
