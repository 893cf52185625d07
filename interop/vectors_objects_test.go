package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/encap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	admin "sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

func randomUUID(r *rand.Rand) types.UID {
	b := make([]byte, 16)
	for i := range b {
		b[i] = byte(r.IntN(256))
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

func ptr[T any](v T) *T { return &v }

func maybe[T any](r *objects, percent int, v T) *T {
	if r.chance(percent) {
		return &v
	}
	return nil
}

func (r *objects) ip() string {
	return one(r.world, fmt.Sprintf("10.65.%d.%d", r.IntN(4), r.IntN(250)), fmt.Sprintf("fd00::%x", 1+r.IntN(500)))
}

func (r *objects) cidr() string {
	return one(r.world, fmt.Sprintf("10.%d.0.0/16", r.IntN(200)), fmt.Sprintf("10.65.%d.7/24", r.IntN(200)), "192.168.0.0/29",
		"fd00:1::/64", "fd00:2::5/64", "0.0.0.0/0", "10.1.2.3/32")
}

func (r *objects) protocol() corev1.Protocol {
	return one(r.world, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

func (r *objects) pod() runtime.Object {
	o := &corev1.Pod{ObjectMeta: r.meta(true, one(r.world, "web-0", "web.1", "a-b-c", "x"))}
	o.GenerateName = one(r.world, "", "web-")
	o.Spec.NodeName = one(r.world, "node-1", "node-2", "node.three", "")
	o.Spec.HostNetwork = r.chance(5)
	o.Spec.ServiceAccountName = one(r.world, "", "default", "web", strings.Repeat("long", 20))
	o.Status.Phase = one(r.world, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded)
	switch r.IntN(8) {
	case 0:
	case 1:
		o.Status.PodIP = r.ip()
	case 2:
		o.Annotations = map[string]string{"cni.projectcalico.org/podIPs": "10.65.0.9/32,fd00::9/128"}
	case 3:
		o.Annotations = map[string]string{"cni.projectcalico.org/podIP": one(r.world, "10.65.0.9/32", "")}
	case 4:
		o.Annotations = map[string]string{"vpc.amazonaws.com/pod-ips": "10.65.0.10"}
	default:
		o.Status.PodIP = "10.65.0.2"
		o.Status.PodIPs = []corev1.PodIP{{IP: "10.65.0.2"}, {IP: "fd00::2"}}[:1+r.IntN(2)]
	}
	if r.chance(10) {
		o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
	}
	o.Spec.Containers = several(r.world, 2, r.container)
	o.Spec.InitContainers = several(r.world, 2, r.container)
	r.podAnnotations(o)
	return o
}

func (r *objects) container() corev1.Container {
	return corev1.Container{Name: "c", Ports: several(r.world, 3, func() corev1.ContainerPort {
		return corev1.ContainerPort{
			Name: one(r.world, "", "http", "dns"), ContainerPort: int32(r.IntN(3) * 80), HostPort: int32(r.IntN(2) * 9000),
			Protocol: one(r.world, "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, "ICMP"),
		}
	})}
}

func (r *objects) podAnnotations(o *corev1.Pod) {
	set := func(k, v string) {
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		o.Annotations[k] = v
	}
	if r.chance(20) {
		set("cni.projectcalico.org/floatingIPs", one(r.world, `["1.2.3.4"]`, `["1.2.3.4","fd01::1","bad"]`, `[]`))
	}
	if r.chance(20) {
		set("cni.projectcalico.org/allowedSourcePrefixes", one(r.world, `["8.8.8.0/24"]`, `["8.8.8.8/24","fd00::/8"]`, ``))
	}
	if r.chance(20) {
		set("k8s.v1.cni.cncf.io/network-status", `[{"name":"<net>"}]`)
	}
	for range r.IntN(4) {
		set(one(r.world, "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth", "qos.projectcalico.org/ingressBandwidth",
			"qos.projectcalico.org/egressBandwidth", "qos.projectcalico.org/ingressBurst", "qos.projectcalico.org/egressBurst",
			"qos.projectcalico.org/ingressPeakrate", "qos.projectcalico.org/egressPeakrate", "qos.projectcalico.org/ingressMinburst",
			"qos.projectcalico.org/egressMinburst", "qos.projectcalico.org/ingressPacketRate", "qos.projectcalico.org/egressPacketRate",
			"qos.projectcalico.org/ingressPacketBurst", "qos.projectcalico.org/egressPacketBurst",
			"qos.projectcalico.org/ingressMaxConnections", "qos.projectcalico.org/egressMaxConnections"),
			one(r.world, "10M", "1k", "5", "1P", "2P", "100G", "", "many", "20000", "0", "-3"))
	}
	if r.chance(20) {
		set("qos.projectcalico.org/dscp", one(r.world, "20", "EF", "af11", "64", "300", "xx", "0"))
	}
}

func (r *objects) namespace() runtime.Object {
	return &corev1.Namespace{ObjectMeta: r.meta(false, one(r.world, "prod", "kube-system"))}
}

func (r *objects) account() runtime.Object {
	return &corev1.ServiceAccount{ObjectMeta: r.meta(true, one(r.world, "default", "web.account"))}
}

func (r *objects) node() runtime.Object {
	o := &corev1.Node{ObjectMeta: r.meta(false, one(r.world, "node-1", "node.two"))}
	set := func(k string, list ...string) {
		if r.chance(35) {
			if o.Annotations == nil {
				o.Annotations = map[string]string{}
			}
			o.Annotations["projectcalico.org/"+k] = one(r.world, list...)
		}
	}
	set("labels", `{"extra":"1"}`, `bad`)
	set("annotations", `{"other":"<2>"}`)
	set("IPv4Address", "10.0.0.1/24", "10.0.0.1", "fd00::1", "bad", "")
	set("IPv6Address", "fd00::1/64", "10.0.0.1", "bad")
	set("RouteReflectorClusterID", "1.2.3.4", "x")
	set("ASNumber", "65000", "1.10", "1.x", "99999999999")
	set("IPv4IPIPTunnelAddr", "10.65.0.1", "fd00::1", "10.65.0.1/32", "10.65.0.1/24")
	set("IPv4VXLANTunnelAddr", "10.65.0.2", "bad")
	set("VXLANTunnelMACAddr", "66:74:c5:72:3f:00", "bad")
	set("IPv6VXLANTunnelAddr", "fd00:0::2", "10.0.0.1")
	set("VXLANTunnelMACAddrV6", "66:74:C5:72:3f:01", "bad")
	set("IPv4WireguardInterfaceAddr", "10.65.0.3", "bad")
	set("IPv6WireguardInterfaceAddr", "fd00::3", "bad")
	set("WireguardPublicKey", "jlkVyQYooZYzI2wFfNhSZez5eWh44yfq1wKVjLvSXgY=")
	set("WireguardPublicKeyV6", "jlkVyQYooZYzI2wFfNhSZez5eWh44yfq1wKVjLvSXgY=")
	set("Interfaces", `[{"name":"eth0","addresses":["10.0.0.1","fd00::1"]},{"name":"lo"}]`, `[]`)
	o.Spec.PodCIDRs = one(r.world, nil, []string{"10.65.1.0/24"}, []string{"10.65.1.0/24", "fd00:1::/64"})
	o.Status.Addresses = several(r.world, 3, func() corev1.NodeAddress {
		return corev1.NodeAddress{
			Type:    one(r.world, corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName),
			Address: one(r.world, "10.0.0.5", "fd00::5", "203.0.113.5", "name"),
		}
	})
	return o
}

func (r *objects) service() runtime.Object {
	o := &corev1.Service{ObjectMeta: r.meta(true, one(r.world, "web", "db"))}
	o.Spec = corev1.ServiceSpec{
		Type: one(r.world, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer), ClusterIP: one(r.world, "10.96.0.1", "None", ""),
		Selector: r.objectLabels(), ExternalIPs: several(r.world, 2, r.ip), SessionAffinity: one(r.world, "", corev1.ServiceAffinityClientIP),
		InternalTrafficPolicy: maybe(r, 50, corev1.ServiceInternalTrafficPolicyLocal), TrafficDistribution: maybe(r, 20, "PreferClose"),
		Ports: several(r.world, 3, func() corev1.ServicePort {
			return corev1.ServicePort{
				Name: one(r.world, "", "http"), Protocol: r.protocol(), Port: int32(r.IntN(65536)),
				TargetPort: one(r.world, intstr.FromInt32(80), intstr.FromString("web")), AppProtocol: maybe(r, 20, "h2c"),
			}
		}),
	}
	if r.chance(30) {
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: r.ip(), IPMode: maybe(r, 50, corev1.LoadBalancerIPModeProxy)}}
	}
	if r.chance(30) {
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}}}
	}
	return o
}

func (r *objects) slice() runtime.Object {
	o := &discoveryv1.EndpointSlice{ObjectMeta: r.meta(true, one(r.world, "web-1", "db-2"))}
	o.AddressType = one(r.world, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	if r.chance(50) {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "x", Controller: ptr(true)}}
	}
	o.Ports = several(r.world, 2, func() discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: maybe(r, 50, "http"), Port: maybe(r, 80, int32(8080)), Protocol: ptr(r.protocol())}
	})
	o.Endpoints = several(r.world, 4, func() discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{
			Addresses:  []string{r.ip()},
			Conditions: discoveryv1.EndpointConditions{Ready: maybe(r, 80, r.chance(50)), Terminating: maybe(r, 30, true)},
			NodeName:   maybe(r, 70, "node-1"), Zone: maybe(r, 30, "a"),
		}
		if r.chance(50) {
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "web-0", Namespace: "prod"}
		}
		if r.chance(20) {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}}
		}
		return e
	})
	return o
}

func (r *objects) labelSelector() metav1.LabelSelector {
	s := metav1.LabelSelector{}
	if r.chance(60) {
		s.MatchLabels = map[string]string{"app": r.named("v", 3)}
		if r.chance(40) {
			s.MatchLabels["a.b/c"] = "x"
		}
	}
	for range r.IntN(3) {
		e := metav1.LabelSelectorRequirement{Key: one(r.world, "app", "env"), Operator: one(r.world, metav1.LabelSelectorOpIn,
			metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
		if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
			e.Values = []string{"b", "a"}[:1+r.IntN(2)]
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func (r *objects) networkPolicySpec() networkingv1.NetworkPolicySpec {
	spec := networkingv1.NetworkPolicySpec{PodSelector: r.labelSelector(), PolicyTypes: one(r.world,
		[]networkingv1.PolicyType{"Ingress"}, []networkingv1.PolicyType{"Egress"}, []networkingv1.PolicyType{"Egress", "Ingress"})}
	peers := func() []networkingv1.NetworkPolicyPeer {
		return several(r.world, 3, func() networkingv1.NetworkPolicyPeer {
			switch r.IntN(4) {
			case 0:
				return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: r.cidr(), Except: several(r.world, 2, r.cidr)}}
			case 1:
				return networkingv1.NetworkPolicyPeer{PodSelector: ptr(r.labelSelector())}
			case 2:
				return networkingv1.NetworkPolicyPeer{NamespaceSelector: ptr(r.labelSelector())}
			}
			return networkingv1.NetworkPolicyPeer{PodSelector: ptr(r.labelSelector()), NamespaceSelector: ptr(r.labelSelector())}
		})
	}
	ports := func() []networkingv1.NetworkPolicyPort {
		return several(r.world, 5, func() networkingv1.NetworkPolicyPort {
			p := networkingv1.NetworkPolicyPort{Protocol: maybe(r, 70, r.protocol())}
			switch r.IntN(8) {
			case 0:
			case 1:
				p.Port = ptr(intstr.FromString(one(r.world, "http", "dns")))
			case 2:
				p.Port, p.EndPort = ptr(intstr.FromInt32(80)), ptr(int32(80+r.IntN(20)))
			default:
				p.Port = ptr(intstr.FromInt32(int32(78 + r.IntN(6))))
			}
			return p
		})
	}
	for range r.IntN(3) {
		spec.Ingress = append(spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers(), Ports: ports()})
	}
	for range r.IntN(3) {
		spec.Egress = append(spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers(), Ports: ports()})
	}
	return spec
}

func (r *objects) networkPolicy() runtime.Object {
	return &networkingv1.NetworkPolicy{ObjectMeta: r.meta(true, one(r.world, "allow-web", "a.b")), Spec: r.networkPolicySpec()}
}

func (r *objects) namespacedPod() *admin.NamespacedPod {
	return &admin.NamespacedPod{NamespaceSelector: r.labelSelector(), PodSelector: r.labelSelector()}
}

func (r *objects) subject() admin.AdminNetworkPolicySubject {
	if r.chance(50) {
		return admin.AdminNetworkPolicySubject{Namespaces: ptr(r.labelSelector())}
	}
	return admin.AdminNetworkPolicySubject{Pods: r.namespacedPod()}
}

// adminPorts has no named ports: Calico v3.31 takes one for all ports of all protocols, and so do we not.
func (r *objects) adminPorts() *[]admin.AdminNetworkPolicyPort {
	if r.chance(30) {
		return nil
	}
	list := several(r.world, 4, func() admin.AdminNetworkPolicyPort {
		if r.chance(50) {
			return admin.AdminNetworkPolicyPort{PortNumber: &admin.Port{Protocol: one(r.world, "", corev1.ProtocolUDP), Port: int32(78 + r.IntN(5))}}
		}
		return admin.AdminNetworkPolicyPort{PortRange: &admin.PortRange{Protocol: r.protocol(), Start: int32(70 + r.IntN(20)), End: 85}}
	})
	return &list
}

func (r *objects) adminFrom() []admin.AdminNetworkPolicyIngressPeer {
	return several(r.world, 3, func() admin.AdminNetworkPolicyIngressPeer {
		if r.chance(50) {
			return admin.AdminNetworkPolicyIngressPeer{Namespaces: ptr(r.labelSelector())}
		}
		return admin.AdminNetworkPolicyIngressPeer{Pods: r.namespacedPod()}
	})
}

func (r *objects) adminTo() []admin.AdminNetworkPolicyEgressPeer {
	return several(r.world, 3, func() admin.AdminNetworkPolicyEgressPeer {
		switch r.IntN(5) {
		case 0:
			return admin.AdminNetworkPolicyEgressPeer{Namespaces: ptr(r.labelSelector())}
		case 1:
			return admin.AdminNetworkPolicyEgressPeer{Nodes: ptr(r.labelSelector())} // Calico v3.31 fails closed
		case 2:
			return admin.AdminNetworkPolicyEgressPeer{Networks: []admin.CIDR{"10.0.0.0/8", admin.CIDR(r.cidr())}}
		}
		return admin.AdminNetworkPolicyEgressPeer{Pods: r.namespacedPod()}
	})
}

func (r *objects) adminPolicy() runtime.Object {
	o := &admin.AdminNetworkPolicy{ObjectMeta: r.meta(false, one(r.world, "x", "y.z"))}
	o.Spec.Priority, o.Spec.Subject = int32(r.IntN(1000)), r.subject()
	action := func() admin.AdminNetworkPolicyRuleAction {
		return one(r.world, admin.AdminNetworkPolicyRuleActionAllow, admin.AdminNetworkPolicyRuleActionDeny, admin.AdminNetworkPolicyRuleActionPass)
	}
	for range r.IntN(3) {
		o.Spec.Ingress = append(o.Spec.Ingress, admin.AdminNetworkPolicyIngressRule{Name: one(r.world, "", "n"), Action: action(), From: r.adminFrom(), Ports: r.adminPorts()})
	}
	for range r.IntN(3) {
		o.Spec.Egress = append(o.Spec.Egress, admin.AdminNetworkPolicyEgressRule{Name: one(r.world, "", "n"), Action: action(), To: r.adminTo(), Ports: r.adminPorts()})
	}
	return o
}

func (r *objects) baselinePolicy() runtime.Object {
	o := &admin.BaselineAdminNetworkPolicy{ObjectMeta: r.meta(false, "default")}
	o.Spec.Subject = r.subject()
	action := func() admin.BaselineAdminNetworkPolicyRuleAction {
		return one(r.world, admin.BaselineAdminNetworkPolicyRuleActionAllow, admin.BaselineAdminNetworkPolicyRuleActionDeny)
	}
	for range r.IntN(3) {
		o.Spec.Ingress = append(o.Spec.Ingress, admin.BaselineAdminNetworkPolicyIngressRule{Name: one(r.world, "", "n"), Action: action(), From: r.adminFrom(), Ports: r.adminPorts()})
	}
	for range r.IntN(3) {
		o.Spec.Egress = append(o.Spec.Egress, admin.BaselineAdminNetworkPolicyEgressRule{Name: one(r.world, "", "n"), Action: action(), To: r.adminTo(), Ports: r.adminPorts()})
	}
	return o
}

func (r *objects) v3Selector() string {
	if r.chance(40) {
		return ""
	}
	return one(r.world, "all()", r.selector(1), "has(app)", "app in {'b', 'a'}")
}

func (r *objects) v3Port() numorstring.Port {
	return one(r.world, numorstring.SinglePort(uint16(r.IntN(65536))), numorstring.NamedPort("http"), numorstring.Port{MinPort: 80, MaxPort: 90})
}

func (r *objects) v3Entity() apiv3.EntityRule {
	e := apiv3.EntityRule{Selector: r.v3Selector(), NamespaceSelector: one(r.world, "", "", "all()", "global()", "team == 'a'"), NotSelector: one(r.world, "", "", "has(env)")}
	e.Nets, e.NotNets = several(r.world, 2, r.cidr), several(r.world, 1, r.cidr)
	e.Ports, e.NotPorts = several(r.world, 2, r.v3Port), several(r.world, 1, r.v3Port)
	if r.chance(20) {
		e.ServiceAccounts = &apiv3.ServiceAccountMatch{Names: several(r.world, 2, func() string { return one(r.world, "b", "a") }), Selector: one(r.world, "", "role == 'x'")}
	}
	if r.chance(10) {
		e.Services = &apiv3.ServiceMatch{Name: "web", Namespace: one(r.world, "", "prod")}
	}
	return e
}

func (r *objects) v3Rules() []apiv3.Rule {
	return several(r.world, 3, func() apiv3.Rule {
		rule := apiv3.Rule{
			Action: one(r.world, apiv3.Allow, apiv3.Deny, apiv3.Log, apiv3.Pass), IPVersion: maybe(r, 20, 4+2*r.IntN(2)),
			Source: r.v3Entity(), Destination: r.v3Entity(),
		}
		switch r.IntN(4) {
		case 0:
			rule.Protocol = ptr(numorstring.ProtocolFromString("TCP"))
		case 1:
			rule.Protocol = ptr(numorstring.ProtocolFromInt(uint8(r.IntN(256))))
		case 2:
			rule.Protocol = ptr(numorstring.ProtocolFromString("ICMPv6"))
			rule.ICMP = &apiv3.ICMPFields{Type: ptr(r.IntN(100)), Code: maybe(r, 40, r.IntN(10))}
			rule.NotProtocol = ptr(numorstring.ProtocolFromString("UDPLite"))
		}
		if r.chance(10) {
			rule.HTTP = &apiv3.HTTPMatch{Methods: []string{"GET"}, Paths: []apiv3.HTTPPath{{Exact: "/<a>"}, {Prefix: "/b"}}}
		}
		if r.chance(10) {
			rule.Metadata = &apiv3.RuleMetadata{Annotations: map[string]string{"z": "1", "a": "&"}}
		}
		return rule
	})
}

func (r *objects) order() *float64 {
	return one(r.world, nil, ptr(1000.0), ptr(0.0), ptr(-2.5), ptr(1e10), ptr(0.1))
}

func (r *objects) types() []apiv3.PolicyType {
	return one(r.world, nil, []apiv3.PolicyType{apiv3.PolicyTypeIngress}, []apiv3.PolicyType{apiv3.PolicyTypeEgress, apiv3.PolicyTypeIngress})
}

// crdMeta is metadata as Calico stores it: what users said is kept in an annotation.
func (r *objects) crdMeta(namespaced bool, name string) metav1.ObjectMeta {
	m := r.meta(namespaced, name)
	if r.chance(40) {
		text, err := json.Marshal(metav1.ObjectMeta{Labels: map[string]string{"app": "kept"}, Annotations: map[string]string{"qos.projectcalico.org/dscp": "10"}})
		if err != nil {
			panic(err)
		}
		m.Annotations = map[string]string{"projectcalico.org/metadata": string(text)}
	}
	return m
}

func (r *objects) hints() []apiv3.PolicyPerformanceHint {
	return one(r.world, nil, []apiv3.PolicyPerformanceHint{apiv3.PerfHintAssumeNeededOnEveryNode})
}

func (r *objects) calicoPolicy() runtime.Object {
	return &apiv3.NetworkPolicy{ObjectMeta: r.crdMeta(true, one(r.world, "sec.web", "default.web", "plain")), Spec: apiv3.NetworkPolicySpec{
		Tier: one(r.world, "sec", "default"), Order: r.order(), Ingress: r.v3Rules(), Egress: r.v3Rules(), Selector: r.v3Selector(), Types: r.types(),
		ServiceAccountSelector: one(r.world, "", "", "role == 'x'", "all()"), PerformanceHints: r.hints(),
	}}
}

func (r *objects) globalPolicy() runtime.Object {
	return &apiv3.GlobalNetworkPolicy{ObjectMeta: r.crdMeta(false, one(r.world, "sec.web", "default.web", "plain")), Spec: apiv3.GlobalNetworkPolicySpec{
		Tier: one(r.world, "sec", "default"), Order: r.order(), Ingress: r.v3Rules(), Egress: r.v3Rules(), Selector: r.v3Selector(), Types: r.types(),
		DoNotTrack: r.chance(20), PreDNAT: r.chance(20), ApplyOnForward: r.chance(30), PerformanceHints: r.hints(),
		ServiceAccountSelector: one(r.world, "", "", "role == 'x'", "all()"), NamespaceSelector: one(r.world, "", "", "team == 'a'", "all()"),
	}}
}

func (r *objects) stagedAction() apiv3.StagedAction {
	return one(r.world, "", apiv3.StagedActionSet, apiv3.StagedActionLearn, apiv3.StagedActionDelete)
}

func (r *objects) stagedPolicy() runtime.Object {
	p := r.calicoPolicy().(*apiv3.NetworkPolicy)
	return &apiv3.StagedNetworkPolicy{ObjectMeta: p.ObjectMeta, Spec: apiv3.StagedNetworkPolicySpec{
		StagedAction: r.stagedAction(), Tier: p.Spec.Tier, Order: p.Spec.Order, Ingress: p.Spec.Ingress, Egress: p.Spec.Egress,
		Selector: p.Spec.Selector, Types: p.Spec.Types, ServiceAccountSelector: p.Spec.ServiceAccountSelector, PerformanceHints: p.Spec.PerformanceHints,
	}}
}

func (r *objects) stagedGlobalPolicy() runtime.Object {
	p := r.globalPolicy().(*apiv3.GlobalNetworkPolicy)
	return &apiv3.StagedGlobalNetworkPolicy{ObjectMeta: p.ObjectMeta, Spec: apiv3.StagedGlobalNetworkPolicySpec{
		StagedAction: r.stagedAction(), Tier: p.Spec.Tier, Order: p.Spec.Order, Ingress: p.Spec.Ingress, Egress: p.Spec.Egress,
		Selector: p.Spec.Selector, Types: p.Spec.Types, DoNotTrack: p.Spec.DoNotTrack, PreDNAT: p.Spec.PreDNAT, ApplyOnForward: p.Spec.ApplyOnForward,
		ServiceAccountSelector: p.Spec.ServiceAccountSelector, NamespaceSelector: p.Spec.NamespaceSelector, PerformanceHints: p.Spec.PerformanceHints,
	}}
}

func (r *objects) stagedKubernetes() runtime.Object {
	spec := r.networkPolicySpec()
	return &apiv3.StagedKubernetesNetworkPolicy{ObjectMeta: r.crdMeta(true, one(r.world, "web", "a.b")), Spec: apiv3.StagedKubernetesNetworkPolicySpec{
		StagedAction: r.stagedAction(), PodSelector: spec.PodSelector, Ingress: spec.Ingress, Egress: spec.Egress, PolicyTypes: spec.PolicyTypes,
	}}
}

func (r *objects) tier() runtime.Object {
	return &apiv3.Tier{ObjectMeta: r.crdMeta(false, one(r.world, "sec", "default")), Spec: apiv3.TierSpec{
		Order: r.order(), DefaultAction: one(r.world, nil, ptr(apiv3.Pass), ptr(apiv3.Deny)),
	}}
}

func (r *objects) networkSet() runtime.Object {
	return &apiv3.NetworkSet{ObjectMeta: r.crdMeta(true, one(r.world, "ext", "a.b")), Spec: apiv3.NetworkSetSpec{Nets: several(r.world, 4, r.cidr)}}
}

func (r *objects) globalSet() runtime.Object {
	nets := append(several(r.world, 4, r.cidr), one(r.world, "10.9.9.9", "fd00::9"))
	return &apiv3.GlobalNetworkSet{ObjectMeta: r.crdMeta(false, one(r.world, "ext", "a.b")), Spec: apiv3.GlobalNetworkSetSpec{Nets: nets}}
}

func (r *objects) hostEndpoint() runtime.Object {
	return &apiv3.HostEndpoint{ObjectMeta: r.crdMeta(false, one(r.world, "node-1-eth0", "h")), Spec: apiv3.HostEndpointSpec{
		Node: one(r.world, "node-1", "node.two"), InterfaceName: one(r.world, "", "*", "eth0"), ExpectedIPs: several(r.world, 3, r.ip),
		Profiles: several(r.world, 2, func() string { return one(r.world, "p", "projectcalico-default-allow") }),
		Ports: several(r.world, 2, func() apiv3.EndpointPort {
			return apiv3.EndpointPort{Name: "http", Protocol: one(r.world, numorstring.ProtocolFromString("TCP"), numorstring.ProtocolFromInt(17)), Port: uint16(1 + r.IntN(65535))}
		}),
	}}
}

func (r *objects) profile() runtime.Object {
	o := &apiv3.Profile{ObjectMeta: r.meta(false, one(r.world, "mine", "default-allow")), Spec: apiv3.ProfileSpec{
		Ingress: r.v3Rules(), Egress: r.v3Rules(), LabelsToApply: r.objectLabels(),
	}}
	o.Kind, o.APIVersion = apiv3.KindProfile, apiv3.GroupVersionCurrent
	return o
}

func (r *objects) pool() runtime.Object {
	o := &apiv3.IPPool{ObjectMeta: r.crdMeta(false, "pool"), Spec: apiv3.IPPoolSpec{
		CIDR: one(r.world, "10.65.0.0/16", "10.66.0.1/24", "fd00:65::/112"), VXLANMode: one(r.world, "", apiv3.VXLANModeAlways, apiv3.VXLANModeNever, apiv3.VXLANModeCrossSubnet),
		IPIPMode: one(r.world, "", apiv3.IPIPModeAlways, apiv3.IPIPModeNever, apiv3.IPIPModeCrossSubnet), NATOutgoing: r.chance(50), Disabled: r.chance(20),
		DisableBGPExport: r.chance(20), NATOutgoingV1: r.chance(10), BlockSize: 26, NodeSelector: "all()", AssignmentMode: maybe(r, 50, one(r.world, apiv3.Manual, apiv3.Automatic)),
	}}
	if r.chance(20) {
		o.Spec.IPIP = &apiv3.IPIPConfiguration{Enabled: r.chance(70), Mode: one(r.world, "", apiv3.EncapMode(encap.Always), apiv3.EncapMode(encap.CrossSubnet))}
	}
	return o
}

func (r *objects) block() runtime.Object {
	o := &libapiv3.IPAMBlock{ObjectMeta: r.meta(false, "10-65-0-0-26"), Spec: libapiv3.IPAMBlockSpec{
		CIDR: "10.65.0.0/30", Affinity: maybe(r, 80, "host:node-1"), Allocations: []*int{nil, maybe(r, 70, 0), nil, nil}, Unallocated: []int{0, 2, 3},
		SequenceNumber: r.Uint64N(1 << 50), Deleted: r.chance(10), DeprecatedStrictAffinity: r.chance(10),
	}}
	if r.chance(70) {
		o.Spec.Attributes = []libapiv3.AllocationAttribute{{AttrPrimary: maybe(r, 80, "k8s-pod-network.x"), AttrSecondary: map[string]string{"node": "node-2", "pod": "web-0"}}, {}}
		o.Spec.SequenceNumberForAllocation = map[string]uint64{"1": 5}
	}
	return o
}

func (r *objects) password() *apiv3.BGPPassword {
	return one(r.world, nil, &apiv3.BGPPassword{}, &apiv3.BGPPassword{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k", Optional: maybe(r, 50, true),
	}})
}

func (r *objects) as() numorstring.ASNumber { return numorstring.ASNumber(r.Uint32()) }

func (r *objects) bgpConfiguration() runtime.Object {
	o := &apiv3.BGPConfiguration{ObjectMeta: r.crdMeta(false, one(r.world, "default", "node.n1")), Spec: apiv3.BGPConfigurationSpec{
		LogSeverityScreen: one(r.world, "", "Info"), NodeToNodeMeshEnabled: maybe(r, 50, r.chance(50)), ASNumber: maybe(r, 50, r.as()),
		ListenPort: uint16(r.IntN(2) * 1179), NodeMeshPassword: r.password(), NodeMeshMaxRestartTime: maybe(r, 30, metav1.Duration{Duration: 90 * time.Second}),
		BindMode: maybe(r, 30, apiv3.BindModeNodeIP), IgnoredInterfaces: several(r.world, 2, func() string { return "eth<0>" }),
		LocalWorkloadPeeringIPV4: one(r.world, "", "169.254.1.1"), LocalWorkloadPeeringIPV6: one(r.world, "", "fd00::1"),
		ServiceLoadBalancerAggregation: maybe(r, 20, apiv3.ServiceLoadBalancerAggregationDisabled),
	}}
	for range r.IntN(3) {
		o.Spec.ServiceClusterIPs = append(o.Spec.ServiceClusterIPs, apiv3.ServiceClusterIPBlock{CIDR: r.cidr()})
		o.Spec.ServiceExternalIPs = append(o.Spec.ServiceExternalIPs, apiv3.ServiceExternalIPBlock{CIDR: r.cidr()})
		o.Spec.ServiceLoadBalancerIPs = append(o.Spec.ServiceLoadBalancerIPs, apiv3.ServiceLoadBalancerIPBlock{CIDR: r.cidr()})
		o.Spec.Communities = append(o.Spec.Communities, apiv3.Community{Name: "c", Value: "1:2"})
		o.Spec.PrefixAdvertisements = append(o.Spec.PrefixAdvertisements, apiv3.PrefixAdvertisement{CIDR: r.cidr(), Communities: []string{"c"}})
	}
	return o
}

func (r *objects) bgpPeer() runtime.Object {
	return &apiv3.BGPPeer{ObjectMeta: r.crdMeta(false, "peer"), Spec: apiv3.BGPPeerSpec{
		Node: one(r.world, "", "n1"), NodeSelector: one(r.world, "", "all()"), PeerIP: one(r.world, "", "10.0.0.1:179"), ASNumber: one(r.world, 0, r.as()),
		LocalASNumber: maybe(r, 30, r.as()), PeerSelector: one(r.world, "", "a == 'b'"), KeepOriginalNextHop: r.chance(20), NextHopMode: maybe(r, 20, apiv3.NextHopMode("Self")),
		Password: r.password(), SourceAddress: one(r.world, "", apiv3.SourceAddressNone), MaxRestartTime: maybe(r, 30, metav1.Duration{Duration: time.Minute}),
		NumAllowedLocalASNumbers: maybe(r, 20, int32(2)), TTLSecurity: maybe(r, 20, uint8(1)), ReachableBy: one(r.world, "", "10.0.0.2"),
		Filters: several(r.world, 2, func() string { return "f" }), LocalWorkloadSelector: one(r.world, "", "all()"), ReversePeering: maybe(r, 20, apiv3.ReversePeeringAuto),
	}}
}

func (r *objects) bgpFilter() runtime.Object {
	v4 := func() []apiv3.BGPFilterRuleV4 {
		return several(r.world, 2, func() apiv3.BGPFilterRuleV4 {
			return apiv3.BGPFilterRuleV4{
				CIDR: one(r.world, "", "10.0.0.0/8"), PrefixLength: maybe(r, 30, apiv3.BGPFilterPrefixLengthV4{Min: maybe(r, 50, int32(8))}),
				Source: one(r.world, "", apiv3.BGPFilterSourceRemotePeers), Interface: one(r.world, "", "eth*"), MatchOperator: one(r.world, "", apiv3.BGPFilterMatchOperator("Equal")), Action: apiv3.Accept,
			}
		})
	}
	v6 := func() []apiv3.BGPFilterRuleV6 {
		return several(r.world, 2, func() apiv3.BGPFilterRuleV6 {
			return apiv3.BGPFilterRuleV6{CIDR: "fd00::/8", PrefixLength: maybe(r, 30, apiv3.BGPFilterPrefixLengthV6{Max: maybe(r, 50, int32(64))}), Action: apiv3.Reject}
		})
	}
	return &apiv3.BGPFilter{ObjectMeta: r.crdMeta(false, "filter"), Spec: apiv3.BGPFilterSpec{ExportV4: v4(), ImportV4: v4(), ExportV6: v6(), ImportV6: v6()}}
}

func (r *objects) nodeStatus() runtime.Object {
	o := &apiv3.CalicoNodeStatus{ObjectMeta: r.crdMeta(false, "status"), Spec: apiv3.CalicoNodeStatusSpec{
		Node: "n1", Classes: several(r.world, 2, func() apiv3.NodeStatusClassType { return apiv3.NodeStatusClassTypeBGP }), UpdatePeriodSeconds: maybe(r, 50, uint32(10)),
	}}
	if r.chance(60) {
		o.Status = apiv3.CalicoNodeStatusStatus{
			LastUpdated: metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, Agent: apiv3.CalicoNodeAgentStatus{BIRDV4: apiv3.BGPDaemonStatus{State: "Ready", Version: "v", RouterID: "1.1.1.1", LastBootTime: "b", LastReconfigurationTime: "c"}},
			BGP: apiv3.CalicoNodeBGPStatus{NumberEstablishedV4: r.IntN(5), PeersV4: several(r.world, 2, func() apiv3.CalicoNodePeer {
				return apiv3.CalicoNodePeer{PeerIP: r.ip(), Type: "NodeMesh", State: "Established", Since: "s"}
			})},
			Routes: apiv3.CalicoNodeBGPRouteStatus{RoutesV6: several(r.world, 2, func() apiv3.CalicoNodeRoute {
				return apiv3.CalicoNodeRoute{Type: "FIB", Destination: r.cidr(), Gateway: r.ip(), Interface: "eth0", LearnedFrom: apiv3.CalicoNodeRouteLearnedFrom{SourceType: "BGPPeer", PeerIP: r.ip()}}
			})},
		}
	}
	return o
}
