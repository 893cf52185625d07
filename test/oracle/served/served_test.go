package served

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// TestPort asks about UDP ports 40000 to 40003 of a pod: the objects declare 40001 and 40002, or 40001 alone.
func TestPort(t *testing.T) {
	meta, all, udp := metav1.ObjectMeta{Namespace: "prod", Name: "x"}, &metav1.LabelSelector{}, corev1.ProtocolUDP
	first, end, port32 := intstr.FromInt32(40001), int32(40002), int32(40001)
	np := &networkingv1.NetworkPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}, ObjectMeta: meta}
	np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp}, {Protocol: &udp, Port: &first, EndPort: &end}}}}
	other, deny := np.DeepCopy(), np.DeepCopy()
	deny.Name, deny.Spec.Ingress = "deny", nil
	other.Spec.PodSelector.MatchLabels = map[string]string{"app": "other"}
	egress := np.DeepCopy()
	egress.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	admin := &policy.AdminNetworkPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "policy.networking.k8s.io/v1alpha1", Kind: "AdminNetworkPolicy"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	admin.Spec.Subject.Namespaces = all
	admin.Spec.Ingress = []policy.AdminRule{{Action: "Allow", From: []policy.AdminPeer{{Namespaces: all}}, Ports: &[]policy.AdminPort{
		{PortNumber: &policy.AdminPortNumber{Protocol: "UDP", Port: 40002}}, {PortRange: &policy.AdminPortRange{Protocol: "UDP", Start: 40001, End: 40001}},
	}}}
	cluster := &policy.ClusterNetworkPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "policy.networking.k8s.io/v1alpha2", Kind: "ClusterNetworkPolicy"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	cluster.Spec.Tier, cluster.Spec.Subject.Namespaces = "Admin", all
	cluster.Spec.Ingress = []policy.ClusterRule{{Action: "Accept", From: []policy.AdminPeer{{Namespaces: all}}, Protocols: []policy.ClusterProtocol{
		{UDP: &policy.ClusterL4{DestinationPort: &policy.ClusterPort{Number: 40001}}}, {UDP: &policy.ClusterL4{DestinationPort: &policy.ClusterPort{Range: &policy.ClusterPortRange{Start: 40002, End: 40002}}}},
	}}}
	calico := &policy.CalicoPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "projectcalico.org/v3", Kind: "GlobalNetworkPolicy"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	calico.Spec.Ingress = []policy.CalicoRule{{Action: "Allow", Destination: &policy.CalicoEntity{Ports: []intstr.IntOrString{first, intstr.FromString("40001:40002"), intstr.FromString("web")}}}}
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.1.2"}}}, Ports: []discoveryv1.EndpointPort{{Protocol: &udp, Port: &port32}},
	}
	serving := []corev1.ContainerPort{{Name: "web", Protocol: udp, ContainerPort: 40001}}
	for _, c := range []struct {
		name  string
		ports []corev1.ContainerPort
		o     policy.Object
		want  [4]bool
	}{
		{"NetworkPolicy", nil, np, [4]bool{1: true, 2: true}},
		{"NetworkPolicy for other pods", nil, other, [4]bool{}},
		{"NetworkPolicy for egress", nil, egress, [4]bool{}},
		{"AdminNetworkPolicy", nil, admin, [4]bool{1: true, 2: true}},
		{"ClusterNetworkPolicy", nil, cluster, [4]bool{1: true, 2: true}},
		{"GlobalNetworkPolicy", nil, calico, [4]bool{1: true, 2: true}},
		{"EndpointSlice", nil, slice, [4]bool{1: true}},
		{"container", serving, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}, [4]bool{1: true}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "pod"}}
		pod.Spec.Containers = []corev1.Container{{Name: "c", Ports: c.ports}}
		pod.Status.PodIPs = []corev1.PodIP{{IP: "10.1.1.2"}}
		pod.Namespace, pod.Status.Phase = "prod", corev1.PodRunning
		peer := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "peer"}}
		peer.Status.PodIPs = []corev1.PodIP{{IP: "10.1.1.3"}}
		ask := func(at string, proto policy.Protocol, number uint16) bool {
			t.Helper()
			closed := deny.DeepCopy() // another policy decides
			got, err := Port([]policy.Object{closed, c.o, pod, peer}, netip.MustParseAddr(at), netip.MustParseAddr("10.1.1.3"), proto, number)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for i, want := range c.want {
			if got := ask("10.1.1.2", policy.UDP, uint16(40000+i)); got != want {
				t.Errorf("%s: port %d: %v, want %v", c.name, 40000+i, got, want)
			}
		}
		if ask("10.1.1.2", policy.TCP, 40001) != (c.name == "GlobalNetworkPolicy") {
			t.Errorf("%s: declares the port of TCP, or does not", c.name)
		}
		if own := c.name == "EndpointSlice" || c.name == "container"; own && ask("10.1.1.3", policy.UDP, 40001) {
			t.Errorf("%s: declares the port of another pod", c.name)
		}
	}
}
