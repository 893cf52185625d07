package generate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// Kinds chooses which kinds of policies a random cluster has; NetworkPolicies it always has.
type Kinds struct {
	Admin, Cluster, Calico bool // AdminNetworkPolicy and its baseline; ClusterNetworkPolicy; Calico's own
	Services               bool
	Hosts                  bool // host endpoints on the nodes' uplinks, and profiles for them
}

// AllKinds is every kind there is.
func AllKinds() Kinds {
	return Kinds{Admin: true, Cluster: true, Calico: true, Services: true, Hosts: true}
}

// World is a random cluster that changes step by step. Every draw comes from its generator, so a seed determines everything.
// Objects are never changed, only replaced.
type World struct {
	rng     *rand.Rand
	kinds   Kinds
	objects map[policy.Key]policy.Object
	names   int // of objects made so far
	taken   map[string][]int
	blocks  []netip.Prefix // that were used as ipBlocks, networks and the like: their bounds are worth a packet
	numbers []uint16       // that were used as ports: their neighbours are
}

// Bounds of the random clusters: small, so that collisions and corner cases are frequent.
const (
	maxNodes    = 3
	maxPods     = 6 // on all nodes
	maxPolicies = 9
)

// Objects are all objects of the cluster, in the order of their keys.
func (w *World) Objects() []policy.Object {
	out := make([]policy.Object, 0, len(w.objects))
	for _, o := range w.objects {
		out = append(out, o)
	}
	policy.Sort(out)
	return out
}

func (w *World) putObject(o policy.Object) policy.Object {
	w.objects[policy.KeyOf(o)] = o
	return o
}

func (w *World) chance(n int) bool { return w.rng.IntN(n) == 0 }

func pick[T any](w *World, list ...T) T { return list[w.rng.IntN(len(list))] }

// some are n random elements, each once, in random order.
func some[T any](w *World, n int, list ...T) []T {
	list = slices.Clone(list)
	w.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(n, len(list))]
}

func ptr[T any](v T) *T { return &v }

// objectsOf are the objects of one type, in the order of their keys.
func objectsOf[T policy.Object](w *World) []T {
	var out []T
	for _, o := range w.Objects() {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// edit puts a changed copy of o.
func edit[T policy.Object](w *World, o T, change func(T)) policy.Object {
	text, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("an object of our own making is no JSON: %v", err))
	}
	c := policy.Blank(policy.KeyOf(o).APIVersion, policy.KeyOf(o).Kind).(T)
	if err := json.Unmarshal(text, c); err != nil {
		panic(fmt.Sprintf("an object of our own making is no JSON: %v", err))
	}
	change(c)
	return w.putObject(c)
}

func (w *World) name(prefix string) string {
	w.names++
	return fmt.Sprintf("%s-%d", prefix, w.names)
}

// values are those of labels, the first two more often than the last.
var values = [...]string{"a", "a", "a", "b", "b", "c"}

// labels are drawn from few, so that selectors meet them.
func (w *World) labels() map[string]string {
	out := map[string]string{}
	for _, k := range []string{"app", "tier", "env"} {
		if !w.chance(4) {
			out[k] = pick(w, values[:]...)
		}
	}
	return out
}

func (w *World) addNode(i int) {
	n := &corev1.Node{TypeMeta: policy.TypeOf(policy.GroupCore, "Node"), ObjectMeta: policy.Meta("", fmt.Sprintf("node-%d", i), w.labels())}
	n.Spec.PodCIDRs = []string{fmt.Sprintf("10.1.%d.0/24", i), fmt.Sprintf("fd00:10:1:%d::/64", i)}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.16.%d", i)},
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd00:192:168::%d", i)},
	}
	if w.chance(3) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: fmt.Sprintf("203.0.113.%d", 200+i)})
	}
	w.putObject(n)
}

// namespace has the label an API server would give it, or, as in a folder of manifests, it has not.
func (w *World) namespace(name string) *corev1.Namespace {
	n := &corev1.Namespace{TypeMeta: policy.TypeOf(policy.GroupCore, "Namespace"), ObjectMeta: policy.Meta("", name, w.labels())}
	if !w.chance(4) {
		n.Labels[corev1.LabelMetadataName] = name
	}
	return n
}

// addPod makes a pod; now and then one of the host network, one that is finished, or one that has no address yet.
func (w *World) addPod() policy.Object {
	node := pick(w, objectsOf[*corev1.Node](w)...)
	ns := pick(w, objectsOf[*corev1.Namespace](w)...)
	p := &corev1.Pod{TypeMeta: policy.TypeOf(policy.GroupCore, "Pod"), ObjectMeta: policy.Meta(ns.Name, w.name("pod"), w.labels())}
	p.Spec.NodeName = node.Name
	p.Spec.ServiceAccountName = pick(w, "default", "web", "web", "unknown")
	p.Spec.Containers = w.containers("c")
	if w.chance(4) {
		p.Spec.InitContainers = w.containers("i")
		if w.chance(2) {
			p.Spec.InitContainers[0].RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
		}
	}
	p.Status.Phase = corev1.PodRunning
	switch {
	case w.chance(12):
		p.Spec.HostNetwork = true
		w.address(p, node.Status.Addresses[0].Address)
		return w.putObject(p)
	case w.chance(12):
		p.Status.Phase = corev1.PodPending
		return w.putObject(p)
	}
	w.addAddresses(p, node)
	if w.chance(12) {
		p.Status.Phase = pick(w, corev1.PodSucceeded, corev1.PodFailed)
		w.giveBack(p)
	}
	return w.putObject(p)
}

// addAddresses assigns the lowest free addresses: those of a finished pod soon belong to another pod.
func (w *World) addAddresses(p *corev1.Pod, node *corev1.Node) {
	i := 2
	for ; slices.Contains(w.taken[node.Name], i); i++ {
	}
	w.taken[node.Name] = append(w.taken[node.Name], i)
	var n int
	_, _ = fmt.Sscanf(node.Name, "node-%d", &n) // they are all of this form
	v4, v6 := fmt.Sprintf("10.1.%d.%d", n, i), fmt.Sprintf("fd00:10:1:%d::%x", n, i)
	switch w.rng.IntN(8) {
	case 0:
		w.address(p, v4)
	case 1:
		w.address(p, v6)
	default:
		w.address(p, v4, v6)
	}
}

func (w *World) address(p *corev1.Pod, ips ...string) {
	p.Status.PodIP, p.Status.PodIPs = ips[0], nil
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
}

// giveBack frees the addresses of a pod that does not use them any more.
func (w *World) giveBack(p *corev1.Pod) {
	if p.Spec.HostNetwork || len(p.Status.PodIPs) == 0 {
		return
	}
	a := netip.MustParseAddr(p.Status.PodIPs[0].IP)
	last := int(a.As16()[15])
	w.taken[p.Spec.NodeName] = slices.DeleteFunc(w.taken[p.Spec.NodeName], func(i int) bool { return i == last })
}

// The names ports have; the numbers behind them differ from pod to pod.
var portNames = [...]string{"http", "dns", "admin"}

func (w *World) containers(prefix string) []corev1.Container {
	var out []corev1.Container
	for i := range 1 + w.rng.IntN(2) {
		c := corev1.Container{Name: fmt.Sprintf("%s%d", prefix, i), Image: "x"}
		for _, name := range some(w, w.rng.IntN(3), portNames[:]...) {
			c.Ports = append(c.Ports, corev1.ContainerPort{
				Name: name, ContainerPort: int32(w.portNumber()), Protocol: pick(w, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
			})
		}
		out = append(out, c)
	}
	return out
}

func (w *World) portNumber() uint16 {
	n := pick[uint16](w, 80, 80, 80, 81, 82, 8080)
	w.numbers = append(w.numbers, n)
	return n
}

// portsFrom is a range of ports, both ends included.
func (w *World) portsFrom() (first, last uint16) {
	first = pick[uint16](w, 1, 70, 79, 80, 80, 1024, 60000)
	last = first + pick[uint16](w, 1, 2, 10, 11, 100)
	if w.chance(20) {
		last = 65535
	}
	w.numbers = append(w.numbers, first, last)
	return first, last
}

// selector is a Kubernetes selector over the labels that objects have.
func (w *World) selector() metav1.LabelSelector {
	var s metav1.LabelSelector
	switch w.rng.IntN(5) {
	case 0, 3: // everything
		return s
	case 1, 2:
		s.MatchLabels = map[string]string{pick(w, "app", "tier", "env"): pick(w, values[:]...)}
		if w.chance(4) {
			s.MatchLabels[pick(w, "app", "tier", "env")] = pick(w, values[:]...)
		}
	}
	if s.MatchLabels == nil || w.chance(4) {
		for range 1 + w.rng.IntN(2) {
			s.MatchExpressions = append(s.MatchExpressions, w.requirement())
		}
	}
	return s
}

func (w *World) requirement() metav1.LabelSelectorRequirement {
	r := metav1.LabelSelectorRequirement{Key: pick(w, "app", "tier", "env", "none")}
	r.Operator = pick(w, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
	if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
		r.Values = some(w, 1+w.rng.IntN(2), "a", "b", "c")
	}
	return r
}

// namespaceSelector may also select by the name every namespace has as a label.
func (w *World) namespaceSelector() metav1.LabelSelector {
	if w.chance(3) {
		return metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: pick(w, "prod", "dev", "ops", "gone")}}
	}
	return w.selector()
}

// network is a range of addresses; six times out of ten it covers pods.
func (w *World) network() netip.Prefix {
	p := netip.MustParsePrefix(pick(w,
		"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.0/29", "10.1.1.2/32", "10.1.2.0/30", "10.1.1.2/31",
		"192.168.16.0/24", "192.168.16.1/32", "198.51.100.0/24", "198.51.100.0/25", "203.0.113.0/24",
		"::/0", "fd00::/8", "fd00:10:1::/48", "fd00:10:1:1::/64", "fd00:10:1:1::/125", "fd00:10:1:1::2/128", "fd00:10:1:2::/126",
		"fd00:10:1::/46", "fd00:192:168::/64", "fd00:192:168::1/128", "2001:db8::/32", "2001:db8::/33", "2001:db8::/35",
	))
	w.blocks = append(w.blocks, p)
	return p
}

// networks are a few of them.
func (w *World) networks() []string {
	var out []string
	for range 1 + w.rng.IntN(3) {
		if n := w.network().String(); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// part is a range strictly within p.
func (w *World) part(p netip.Prefix) (netip.Prefix, bool) {
	if p.IsSingleIP() {
		return p, false
	}
	longer := p.Bits() + 1 + w.rng.IntN(min(10, p.Addr().BitLen()-p.Bits()))
	a := p.Addr()
	for range w.rng.IntN(8) { // some addresses into it, so that it is not always the first part
		a = a.Next()
	}
	if w.chance(2) {
		for _, q := range w.allAddrs() { // better: a part with a pod in it
			if p.Contains(q) {
				a = q
				break
			}
		}
	}
	if !p.Contains(a) {
		a = p.Addr()
	}
	q, err := a.Prefix(longer)
	w.blocks = append(w.blocks, q)
	return q, err == nil
}

// allAddrs are those of pods and nodes.
func (w *World) allAddrs() []netip.Addr {
	var out []netip.Addr
	for _, p := range objectsOf[*corev1.Pod](w) {
		for _, ip := range p.Status.PodIPs {
			out = append(out, netip.MustParseAddr(ip.IP))
		}
	}
	w.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Change is an object that was put, or one that was removed (Object nil).
type Change struct {
	Key    policy.Key
	Object policy.Object
}
