package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8s "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/test/simulate/apiserver"
)

// cluster is what users, the kubelet and the controller of endpoints write to the API server. A pod has the addresses of its acknowledged ADD.
type cluster struct {
	server *apiserver.Server
	fixed  []apiserver.Object

	mu      sync.Mutex
	pods    map[string][]netip.Addr
	earlier [][]apiserver.Object // states, the present one at the end
	older   int                  // faults in which the server has one of the earlier states
	bad     error
}

// service is one of the Services. Both families have an address.
type service struct {
	name   string
	addrs  []netip.Addr
	member func(pod string) bool // reports whether the pod is an endpoint
}

var services = []service{
	{"web", []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::10")}, isWeb},
	{"any", []netip.Addr{netip.MustParseAddr("10.96.0.11"), netip.MustParseAddr("fd00:96::11")}, func(string) bool { return true }},
}

// Ports of all Services.
const (
	servicePort = 80
	podPort     = 8080
)

func meta(kind, version, name string) (metav1.TypeMeta, metav1.ObjectMeta) {
	return metav1.TypeMeta{Kind: kind, APIVersion: version}, metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// The nodes, each with as many pods.
var nodeNames = []string{"node1", "node2"}

const podsPerNode = 3

// nodeOf is the number of a pod's node.
func nodeOf(pod string) int { return int(pod[1]-'0') / podsPerNode }

// rangesOf are the first addresses of a node's pods, by family.
func rangesOf(node int) []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(node + 1), 0}), netip.MustParseAddr(fmt.Sprintf("fd00:%d::", node+1))}
}

// newNode is the Node of a number.
func newNode(seed uint64, number int) *corev1.Node {
	o := &corev1.Node{}
	o.TypeMeta, o.ObjectMeta = meta("Node", "v1", nodeNames[number])
	o.Namespace = ""
	lengths := [][2]int{{28, 124}, {24, 64}}[seed%2] // every second seed has so few addresses that pods get those that others had
	for i, a := range rangesOf(number) {
		o.Spec.PodCIDRs = append(o.Spec.PodCIDRs, netip.PrefixFrom(a, lengths[i]).String())
	}
	o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.0.2.", number+1)}}
	return o
}

// newCluster returns a cluster with nodes, a policy and Services, and no pods.
func newCluster(seed uint64) *cluster {
	c := &cluster{server: apiserver.New(seed), pods: map[string][]netip.Addr{}}
	ns, policy := &corev1.Namespace{}, &networking.NetworkPolicy{}
	ns.TypeMeta, ns.ObjectMeta = meta("Namespace", "v1", namespace)
	ns.Namespace = ""
	policy.TypeMeta, policy.ObjectMeta = meta("NetworkPolicy", "networking.k8s.io/v1", "web")
	policy.Spec = networking.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Ingress:     []networking.NetworkPolicyIngressRule{{From: []networking.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}}}}}},
	}
	c.fixed = []apiserver.Object{ns, policy}
	for i := range nodeNames {
		c.fixed = append(c.fixed, newNode(seed, i))
	}
	for _, s := range services {
		o := &corev1.Service{}
		o.TypeMeta, o.ObjectMeta = meta("Service", "v1", s.name)
		o.Spec = corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromInt32(podPort)}},
		}
		for _, a := range s.addrs {
			o.Spec.ClusterIPs = append(o.Spec.ClusterIPs, a.String())
		}
		o.Spec.ClusterIP = o.Spec.ClusterIPs[0]
		c.fixed = append(c.fixed, o)
	}
	c.write()
	return c
}

// putPod writes a pod; no addresses: its ADD is not acknowledged.
func (c *cluster) putPod(name string, addrs []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[name] = addrs
	c.write()
}

// removePod removes a pod.
func (c *cluster) removePod(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, name)
	c.write()
}

// goBack gives the server an earlier state until end, as one that is restored from a backup and gets the present state again by kubelet and controllers.
func (c *cluster) goBack(n int) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.older++
	to := max(0, len(c.earlier)-1-n%8)
	c.bad = errors.Join(c.bad, c.server.Set(c.earlier[to]))
	if n%2 == 0 { // clients have to list
		c.server.Expire()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.older--
		c.write()
	}
}

// write gives the server the present state, under mu.
func (c *cluster) write() {
	all := c.objects()
	c.earlier = append(c.earlier, all)
	if c.older == 0 {
		c.bad = errors.Join(c.bad, c.server.Set(all))
	}
}

func (c *cluster) objects() []apiserver.Object {
	all := slices.Clone(c.fixed)
	names := slices.Sorted(maps.Keys(c.pods))
	for _, name := range names {
		all = append(all, podOf(name, c.pods[name]))
	}
	for _, s := range services {
		for i, family := range []discovery.AddressType{discovery.AddressTypeIPv4, discovery.AddressTypeIPv6} {
			all = append(all, c.slice(s, i, family, names))
		}
	}
	return all
}

func podOf(name string, addrs []netip.Addr) *corev1.Pod {
	p := &corev1.Pod{}
	p.TypeMeta, p.ObjectMeta = meta("Pod", "v1", name)
	p.Labels = map[string]string{"app": map[bool]string{true: "web", false: "client"}[isWeb(name)]}
	p.Spec.NodeName, p.Status.Phase = nodeNames[nodeOf(name)], corev1.PodPending
	for _, a := range addrs {
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, addrs[0].String()
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	return p
}

// slice is the EndpointSlice of a Service in a family: its pods with an address there.
func (c *cluster) slice(s service, i int, family discovery.AddressType, names []string) *discovery.EndpointSlice {
	out := &discovery.EndpointSlice{AddressType: family, Endpoints: []discovery.Endpoint{}}
	out.TypeMeta, out.ObjectMeta = meta("EndpointSlice", "discovery.k8s.io/v1", s.name+"-"+strings.ToLower(string(family)))
	out.Labels = map[string]string{discovery.LabelServiceName: s.name}
	tcp, port, ready := corev1.ProtocolTCP, int32(podPort), true
	portName := ""
	out.Ports = []discovery.EndpointPort{{Name: &portName, Protocol: &tcp, Port: &port}}
	for _, name := range names {
		if addrs := c.pods[name]; s.member(name) && i < len(addrs) {
			out.Endpoints = append(out.Endpoints, discovery.Endpoint{
				Addresses: []string{addrs[i].String()}, Conditions: discovery.EndpointConditions{Ready: &ready}, NodeName: &nodeNames[nodeOf(name)],
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name},
			})
		}
	}
	return out
}

// list has all objects as agents read them.
func (c *cluster) list() (out []model.Object, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.objects() {
		converted, err := convert.Object(o.(k8s.Object))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.GetName(), err)
		}
		out = append(out, converted)
	}
	return out, c.bad
}
