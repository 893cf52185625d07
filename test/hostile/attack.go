package hostile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// Attack is what a hostile tenant writes.
type Attack struct {
	Name string
	// Objects are written in one moment, in order; one that appears twice changes.
	Objects func(*rand.Rand) []runtime.Object
	Refused int // objects that an agent with default limits and 1 GiB has to refuse
	// WholeBytes are objects refused beyond Refused on a VPP before 25.06, which compares IPv6 prefixes by whole bytes.
	WholeBytes int
}

// Changes are its objects as a source converts them.
func (a *Attack) Changes(seed uint64) ([]event.Change, error) {
	return convertChanges(a.Objects(rand.New(rand.NewPCG(seed, 0))))
}

const (
	evil = "evil" // namespace of the tenant
	pods = 5      // that it has on the node
)

// Attacks are inputs that stopped a node or its agent, and variants of them.
func Attacks() []Attack {
	big := func(n int, s shape) func(*rand.Rand) []runtime.Object {
		return func(r *rand.Rand) []runtime.Object { return policies(r, n, s) }
	}
	ranges := func(ports int) func(*rand.Rand) []runtime.Object {
		return func(r *rand.Rand) []runtime.Object { return balancer(r, 4000, ports) }
	}
	return []Attack{
		{"a Service with 4,000 source ranges and 6 ports", ranges(6), 1, 0},
		{"a Service with 4,000 source ranges and 20 ports", ranges(20), 1, 0},
		{"5 policies of 5,000 ipBlocks and 50 ports", big(5, shape{blocks: 5000, ports: 50}), 5, 0},
		{"5 policies of 200 ipBlocks, 30 exceptions of each and 20 ports", big(5, shape{blocks: 200, excepts: 30, ports: 20}), 5, 0},
		{"a policy of 10 ipBlocks and 32,767 ports", big(1, shape{blocks: 10, ports: 32767}), 1, 0},
		{"1,000 policies of 50 ipBlocks", big(1000, shape{blocks: 50, ports: 1}), 0, 0},
		{"a policy of 513 IPv6 ranges of 57 bits", big(1, shape{blocks: 513, bits: 57, ports: 1}), 0, 1},
		{"5 policies of 500 IPv6 ranges of 57 bits", big(5, shape{blocks: 500, bits: 57, ports: 1}), 0, 1}, // 64,000 rules each
		{"5 policies of 40 IPv6 ranges, 30 exceptions of each and 3 ports", big(5, shape{blocks: 40, bits: 57, excepts: 30, ports: 3}), 5, 0},
		{"a Service with 100 ports and 20,000 endpoints", endpoints, 1, 0},
		{"1,000 changes of a policy", storm, 0, 0},
		{"50 policies with the longest names and labels", long, 0, 0},
	}
}

// address is a random one outside the cluster.
func address(r *rand.Rand) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + r.IntN(100)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: evil, Name: name} }

func balancer(r *rand.Rand, ranges, ports int) []runtime.Object {
	s := &corev1.Service{ObjectMeta: meta("balancer"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.66.1", ClusterIPs: []string{"10.96.66.1"},
	}}
	for range ranges {
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, address(r).String()+"/32")
	}
	for i := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("p%d", i), Port: int32(1000 + 2*i), Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(80),
		})
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.18.66.1"}}
	return []runtime.Object{s}
}

// shape is that of a policy.
type shape struct{ blocks, excepts, ports, bits int } // bits: of ranges in IPv6; 0: addresses of IPv4

func policies(r *rand.Rand, n int, s shape) (out []runtime.Object) {
	for i := range n {
		out = append(out, blocked(r, fmt.Sprintf("big-%04d", i), i%pods, s))
	}
	return out
}

func blocked(r *rand.Rand, name string, pod int, s shape) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: meta(name), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"n": fmt.Sprint(pod)}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
	}}
	rule := networkingv1.NetworkPolicyIngressRule{}
	for range s.blocks {
		b := &networkingv1.IPBlock{CIDR: address(r).String() + "/32"}
		switch {
		case s.bits > 0:
			at := [16]byte{0x20, 1, 0xd, 0xb8, byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))}
			b.CIDR = netip.PrefixFrom(netip.AddrFrom16(at), s.bits).Masked().String()
			for range s.excepts {
				at[8], at[15] = byte(r.IntN(256)), byte(r.IntN(256))
				b.Except = append(b.Except, netip.AddrFrom16(at).String()+"/128")
			}
		case s.excepts > 0:
			a := address(r).As4()
			b.CIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1]}), 16).String()
			for range s.excepts {
				b.Except = append(b.Except, netip.AddrFrom4([4]byte{a[0], a[1], byte(r.IntN(256)), byte(r.IntN(256))}).String()+"/32")
			}
		}
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: b})
	}
	for i := range s.ports {
		port, tcp := intstr.FromInt32(int32(1+2*i)), corev1.ProtocolTCP
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: &port, Protocol: &tcp})
	}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{rule}
	return p
}

func endpoints(*rand.Rand) []runtime.Object {
	s := &corev1.Service{ObjectMeta: meta("crowd"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.66.2", ClusterIPs: []string{"10.96.66.2"},
	}}
	var ports []discoveryv1.EndpointPort
	for i := range 100 {
		name, number, tcp := fmt.Sprintf("p%d", i), int32(8000+i), corev1.ProtocolTCP
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Port: number, Protocol: tcp, TargetPort: intstr.FromInt32(number)})
		ports = append(ports, discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &tcp})
	}
	out := []runtime.Object{s}
	for n := range 20 {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta(fmt.Sprintf("crowd-%d", n)), AddressType: discoveryv1.AddressTypeIPv4, Ports: ports}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: "crowd"}
		for i := range 1000 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.9.%d.%d", 4*n+i/250, 1+i%250)}})
		}
		out = append(out, slice)
	}
	return out
}

// storm is a policy that changes a thousand times.
func storm(r *rand.Rand) (out []runtime.Object) {
	for i := range 1000 {
		out = append(out, blocked(r, "storm", 0, shape{blocks: 50 + i%2, ports: 5}))
	}
	return out
}

// long is policies whose names, labels and selectors are as long as Kubernetes lets them be.
func long(r *rand.Rand) (out []runtime.Object) {
	for i := range 50 {
		p := blocked(r, strings.Repeat("a", 249)+fmt.Sprintf("%04d", i), i%pods, shape{blocks: 1, ports: 1})
		terms := &metav1.LabelSelector{}
		for k := range 200 {
			key := strings.Repeat("b", 59) + fmt.Sprintf("%04d", k)
			var values []string
			for v := range 20 {
				values = append(values, strings.Repeat("c", 59)+fmt.Sprintf("%04d", v))
			}
			terms.MatchExpressions = append(terms.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values})
		}
		p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{PodSelector: terms, NamespaceSelector: terms})
		out = append(out, p)
	}
	return out
}

// convertChanges converts objects as a source does.
func convertChanges(objects []runtime.Object) ([]event.Change, error) {
	var out []event.Change
	for _, o := range objects {
		obj, err := convert.Object(o)
		ref, _ := convert.Ref(o)
		if err != nil && obj == nil {
			return nil, err
		}
		out = append(out, event.Change{Ref: ref, Object: obj, Err: err})
	}
	return out, nil
}
