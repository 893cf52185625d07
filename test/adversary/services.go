package adversary

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// service is a Service of both families with its endpoints: the running pods of its namespace whose number it has.
type service struct {
	n         int32 // of it: names, addresses and ports follow
	namespace string
	kind      corev1.ServiceType
	proto     corev1.Protocol
	target    int32
	local     bool // externalTrafficPolicy
	affinity  bool
	every     int // which pods are endpoints: each, each second; 0: none
}

func newService(rng *rand.Rand, n int32, namespaces []string, targets []int32) *service {
	s := &service{n: n, namespace: namespaces[rng.IntN(len(namespaces))]}
	s.mutate(rng, targets)
	return s
}

func (s *service) mutate(rng *rand.Rand, targets []int32) {
	s.kind = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}[rng.IntN(3)]
	s.proto = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP}[rng.IntN(3)]
	s.target = targets[rng.IntN(len(targets))]
	s.local, s.affinity, s.every = rng.IntN(3) == 0, rng.IntN(3) == 0, []int{1, 1, 2, 0}[rng.IntN(4)]
}

func (s *service) port() int32 { return 8000 + s.n }

func (s *service) nodePort() int32 {
	if s.kind == corev1.ServiceTypeClusterIP {
		return 0
	}
	return 30000 + s.n
}

// addresses are the cluster IPs, and one more by which a load balancer reaches it.
func (s *service) addresses() []string {
	out := []string{fmt.Sprintf("10.96.0.%d", 10+s.n), fmt.Sprintf("fd00:96::%x", 10+s.n)}
	if s.kind == corev1.ServiceTypeLoadBalancer {
		out = append(out, fmt.Sprintf("203.0.113.%d", 100+s.n), fmt.Sprintf("2001:db8:cb::%x", 100+s.n))
	}
	return out
}

// objects are the Service and its slices for these pods.
func (s *service) objects(pods []*corev1.Pod) []policy.Object {
	name := fmt.Sprintf("web-%d", s.n)
	addrs := s.addresses()
	svc := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
	}
	dual := corev1.IPFamilyPolicyRequireDualStack
	svc.Spec = corev1.ServiceSpec{
		Type: s.kind, ClusterIP: addrs[0], ClusterIPs: addrs[:2], IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, IPFamilyPolicy: &dual,
		Ports: []corev1.ServicePort{{Name: "p", Protocol: s.proto, Port: s.port(), TargetPort: intstr.FromInt32(s.target), NodePort: s.nodePort()}},
	}
	if s.kind != corev1.ServiceTypeClusterIP {
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

func (s *service) slice(name string, family discoveryv1.AddressType, pods []*corev1.Pod) *discoveryv1.EndpointSlice {
	port, target := "p", s.target
	proto, ready := s.proto, true
	e := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name + "-" + strings.ToLower(string(family)), Labels: map[string]string{discoveryv1.LabelServiceName: name},
		},
		AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: &port, Protocol: &proto, Port: &target}},
	}
	for i, p := range pods {
		if s.every == 0 || i%s.every != 0 || p.Namespace != s.namespace {
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

// running are the pods that have an address which is not their node's, in the order of their names.
func running(objects []policy.Object) []*corev1.Pod {
	var out []*corev1.Pod
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok && !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning && len(p.Status.PodIPs) > 0 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return out
}
