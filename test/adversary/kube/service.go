// Package kube turns the objects of a cluster into what the adversary's attacker and its law need of them: Services with their slices,
// differences, endpoints, ports.
//
// Invariant: results depend on the objects and the random stream alone.
package kube

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// Service is a Service of both families with its endpoints: the running pods of its namespace whose number it has.
type Service struct {
	N         int32 // of it: names, addresses and ports follow
	Namespace string
	Kind      corev1.ServiceType
	Proto     corev1.Protocol
	Target    int32
	local     bool // externalTrafficPolicy
	affinity  bool
	Every     int // which pods are endpoints: each, each second; 0: none
}

// NewService draws a Service with that number, in one of these namespaces.
func NewService(rng *rand.Rand, n int32, namespaces []string, targets []int32) *Service {
	s := &Service{N: n, Namespace: namespaces[rng.IntN(len(namespaces))]}
	s.Mutate(rng, targets)
	return s
}

// Mutate draws all but its number and namespace anew.
func (s *Service) Mutate(rng *rand.Rand, targets []int32) {
	s.Kind = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}[rng.IntN(3)]
	s.Proto = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP}[rng.IntN(3)]
	s.Target = targets[rng.IntN(len(targets))]
	s.local, s.affinity, s.Every = rng.IntN(3) == 0, rng.IntN(3) == 0, []int{1, 1, 2, 0}[rng.IntN(4)]
}

// Port is the port of its cluster IPs.
func (s *Service) Port() int32 { return 8000 + s.N }

// NodePort is 0 if it has none.
func (s *Service) NodePort() int32 {
	if s.Kind == corev1.ServiceTypeClusterIP {
		return 0
	}
	return 30000 + s.N
}

// Addresses are the cluster IPs, and one more by which a load balancer reaches it.
func (s *Service) Addresses() []string {
	out := []string{fmt.Sprintf("10.96.0.%d", 10+s.N), fmt.Sprintf("fd00:96::%x", 10+s.N)}
	if s.Kind == corev1.ServiceTypeLoadBalancer {
		out = append(out, fmt.Sprintf("203.0.113.%d", 100+s.N), fmt.Sprintf("2001:db8:cb::%x", 100+s.N))
	}
	return out
}

// Objects are the Service and its slices for these pods.
func (s *Service) Objects(pods []*corev1.Pod) []policy.Object {
	name := fmt.Sprintf("web-%d", s.N)
	addrs := s.Addresses()
	svc := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
	}
	dual := corev1.IPFamilyPolicyRequireDualStack
	svc.Spec = corev1.ServiceSpec{
		Type: s.Kind, ClusterIP: addrs[0], ClusterIPs: addrs[:2], IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, IPFamilyPolicy: &dual,
		Ports: []corev1.ServicePort{{Name: "p", Protocol: s.Proto, Port: s.Port(), TargetPort: intstr.FromInt32(s.Target), NodePort: s.NodePort()}},
	}
	if s.Kind != corev1.ServiceTypeClusterIP {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		if s.local {
			svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
	}
	for _, a := range addrs[2:] {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	if s.affinity {
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	out := []policy.Object{svc}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		out = append(out, s.slice(name, family, pods))
	}
	return out
}

func (s *Service) slice(name string, family discoveryv1.AddressType, pods []*corev1.Pod) *discoveryv1.EndpointSlice {
	port, target := "p", s.Target
	proto, ready := s.Proto, true
	e := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: name + "-" + strings.ToLower(string(family)), Labels: map[string]string{discoveryv1.LabelServiceName: name},
		},
		AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: &port, Protocol: &proto, Port: &target}},
	}
	for i, p := range pods {
		if s.Every == 0 || i%s.Every != 0 || p.Namespace != s.Namespace {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if strings.Contains(ip.IP, ":") == (family == discoveryv1.AddressTypeIPv6) {
				e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{ip.IP}, NodeName: &p.Spec.NodeName, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
					TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name},
				})
			}
		}
	}
	return e
}

// Running are the pods that have an address which is not their node's, in the order of their names.
func Running(objects []policy.Object) []*corev1.Pod {
	var out []*corev1.Pod
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok && !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning && len(p.Status.PodIPs) > 0 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return out
}

// HasAffinity reports whether a Service with affinity has that port or node port.
func HasAffinity(objects []policy.Object, dialled string) bool {
	to, err := netip.ParseAddrPort(dialled)
	return err == nil && slices.ContainsFunc(objects, func(o policy.Object) bool {
		svc, ok := o.(*corev1.Service)
		return ok && svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.Port == int32(to.Port()) || p.NodePort == int32(to.Port())
		})
	})
}

// Masks returns the frontends of Services that may hide their clients: load balancers' addresses, and node ports (false: a port that is none).
func Masks(objects []policy.Object) map[netip.AddrPort]bool {
	out := map[netip.AddrPort]bool{}
	for _, o := range objects {
		svc, ok := o.(*corev1.Service)
		if !ok {
			continue
		}
		for _, p := range svc.Spec.Ports {
			for _, lb := range svc.Status.LoadBalancer.Ingress {
				out[netip.AddrPortFrom(netip.MustParseAddr(lb.IP), uint16(p.Port))] = true
			}
			for _, a := range nodeAddrs(objects) {
				out[netip.AddrPortFrom(a, uint16(p.NodePort))] = p.NodePort != 0
			}
		}
	}
	return out
}

// nodeAddrs are the internal addresses of all nodes.
func nodeAddrs(objects []policy.Object) (out []netip.Addr) {
	for _, o := range objects {
		if n, ok := o.(*corev1.Node); ok {
			for _, a := range n.Status.Addresses {
				if a.Type == corev1.NodeInternalIP {
					out = append(out, netip.MustParseAddr(a.Address))
				}
			}
		}
	}
	return out
}
