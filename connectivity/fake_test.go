package connectivity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/connectivity/probe"
)

// fake is a cluster of nodes whose packets arrive, unless a test breaks them.
type fake struct {
	t     *testing.T
	nodes []string

	mu         sync.Mutex
	namespaces []corev1.Namespace
	pods       map[string]*corev1.Pod
	services   map[string]*corev1.Service
	policies   map[string]*networkingv1.NetworkPolicy
	log        []string

	noDNS       bool
	broken      func(from, to string, p *probe.Probe, o *probe.Outcome) // changes outcomes; nil: nothing
	late        map[string]string                                       // pods that do not start, and their Events
	stale       string                                                  // address of an endpoint without a pod
	unenforced  bool                                                    // policies are not
	noReclassif bool                                                    // a revoked connection continues
	trouble     map[string]*status.Status                               // of agents; nil: no answer
	waiting     map[string]string                                       // agents that do not run
	differences map[string][]string                                     // of nodes
	traces      func(Question) string                                   // nil: delivered
	onExec      func()                                                  // before a program runs in a pod
}

func newFake(t *testing.T) *fake {
	return &fake{
		t: t, nodes: []string{"node-1", "node-2", "node-3"}, pods: map[string]*corev1.Pod{}, services: map[string]*corev1.Service{}, policies: map[string]*networkingv1.NetworkPolicy{},
		trouble: map[string]*status.Status{},
	}
}

func (f *fake) number(node string) int { return slices.Index(f.nodes, node) + 1 }

// Apply implements Cluster.
func (f *fake) Apply(_ context.Context, namespace, manifest string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, doc := range strings.Split(manifest, "---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			f.t.Errorf("%v\n%s", err, doc)
		}
		strict := func(into any) {
			if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
				f.t.Errorf("%v\n%s", err, doc)
			}
		}
		switch kind.Kind {
		case "Namespace":
			var n corev1.Namespace
			strict(&n)
			if n.Name != namespace {
				f.t.Errorf("namespace %q, want %q", n.Name, namespace)
			}
			if len(f.namespaces) == 0 {
				f.namespaces = append(f.namespaces, n)
			}
		case "Pod":
			var p corev1.Pod
			strict(&p)
			f.start(&p)
		case "Service":
			var s corev1.Service
			strict(&s)
			f.expose(&s)
		case "NetworkPolicy":
			var p networkingv1.NetworkPolicy
			strict(&p)
			f.policies[p.Name] = &p
		default:
			f.t.Errorf("unexpected kind in\n%s", doc)
		}
	}
	return nil
}

// start gives a pod addresses, and lets it run.
func (f *fake) start(p *corev1.Pod) {
	n, role := f.number(p.Spec.NodeName), p.Labels["connectivity-test"]
	last := map[string]int{rolePod: 2, rolePeer: 3}[role]
	ips := []string{fmt.Sprintf("10.1.%d.%d", n, last), fmt.Sprintf("fd10:1:%d::%d", n, last)}
	if role == roleHost {
		ips = []string{fmt.Sprintf("192.168.16.%d", n)}
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	ready := corev1.ConditionTrue
	if f.late[p.Name] != "" {
		ready = corev1.ConditionFalse
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	f.pods[p.Name] = p
}

// expose gives a Service its addresses and node ports.
func (f *fake) expose(s *corev1.Service) {
	n := len(f.services) + 1
	if s.Spec.ClusterIP != "None" {
		s.Spec.ClusterIPs = []string{fmt.Sprintf("10.96.1.%d", n), fmt.Sprintf("fd00:96::%d", n)}
	}
	for i := range s.Spec.Ports {
		if s.Spec.Type == corev1.ServiceTypeNodePort {
			s.Spec.Ports[i].NodePort = int32(30000 + 10*n + i)
		}
	}
	s.Namespace = f.namespaces[0].Name
	f.services[s.Name] = s
}

// Delete implements Cluster.
func (f *fake) Delete(ctx context.Context, args ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	f.log = append(f.log, "delete "+strings.Join(args, " "))
	switch args[0] {
	case "namespace":
		f.namespaces = nil
	case "networkpolicy":
		delete(f.policies, args[1])
	}
	return nil
}

// Read implements Cluster.
func (f *fake) Read(ctx context.Context, into any, args ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	switch list := into.(type) {
	case *corev1.NodeList:
		for i, name := range f.nodes {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for _, a := range []string{fmt.Sprintf("192.168.16.%d", i+1), fmt.Sprintf("fd16::%d", i+1)} {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
			}
			list.Items = append(list.Items, n)
		}
		list.Items = append(list.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "windows", Labels: map[string]string{corev1.LabelOSStable: "windows"}}})
	case *corev1.NamespaceList:
		list.Items = f.namespaces
	case *corev1.PodList:
		if !slices.Contains(args, "--selector=agent") {
			for _, p := range f.pods {
				list.Items = append(list.Items, *p)
			}
			break
		}
		for _, name := range f.nodes {
			if why, off := f.waiting[name]; !off || why != "" {
				list.Items = append(list.Items, f.agentPod(name, why))
			}
		}
	case *corev1.ServiceList:
		for _, s := range f.services {
			list.Items = append(list.Items, *s)
		}
		list.Items = append(list.Items, corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
			Spec:       corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 443}}},
		})
		if !f.noDNS {
			list.Items = append(list.Items, corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}}})
		}
	case *discoveryv1.EndpointSliceList:
		list.Items = f.slices(args)
	case *corev1.EventList:
		for name, why := range f.late {
			list.Items = append(list.Items, corev1.Event{InvolvedObject: corev1.ObjectReference{Name: name}, Reason: "FailedCreatePodSandBox", Message: why})
		}
	default:
		f.t.Errorf("read %T", into)
	}
	return nil
}

func (f *fake) agentPod(node, waiting string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "agent", Image: "registry/agent:v1"}}}}
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	if waiting != "" {
		state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waiting}}
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "agent", State: state}}}
	return p
}

// slices are the EndpointSlices of the namespace that is read.
func (f *fake) slices(args []string) (out []discoveryv1.EndpointSlice) {
	if slices.Contains(args, "--namespace=kube-system") {
		port, udp := int32(53), corev1.ProtocolUDP
		return []discoveryv1.EndpointSlice{{
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.9"}, TargetRef: &corev1.ObjectReference{Namespace: "kube-system", Name: "coredns-1"}}},
			Ports:     []discoveryv1.EndpointPort{{Port: &port, Protocol: &udp}},
		}}
	}
	for _, service := range []string{clusterIP, nodePort} {
		s := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service + "-abc", Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
		for _, p := range f.pods {
			if p.Labels["connectivity-test"] == rolePod {
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{p.Status.PodIPs[0].IP}, TargetRef: &corev1.ObjectReference{Name: p.Name}})
			}
		}
		if f.stale != "" && service == clusterIP {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{f.stale}})
		}
		out = append(out, s)
	}
	return out
}

// Execute implements Cluster.
func (f *fake) Execute(ctx context.Context, _, pod, stdin string, line func([]byte), command ...string) error {
	if f.onExec != nil {
		f.onExec()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if strings.Join(command, " ") != "contiv-agent connectivity probe" {
		return fmt.Errorf("no such program: %q", command)
	}
	var probes []probe.Probe
	if err := json.Unmarshal([]byte(stdin), &probes); err != nil {
		return err
	}
	emit := func(o probe.Outcome) {
		o.Took = 1
		b, err := json.Marshal(o)
		if err != nil {
			f.t.Error(err)
		}
		line(b)
	}
	for i := range probes {
		if probes[i].Kind == probe.Hold {
			emit(probe.Outcome{ID: probes[i].ID, Holds: true})
		}
	}
	for i := range probes {
		emit(f.outcome(pod, &probes[i]))
	}
	return nil
}

// outcome is what becomes of a probe.
func (f *fake) outcome(from string, p *probe.Probe) probe.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := probe.Outcome{ID: p.ID}
	to, port := f.behind(from, p)
	switch p.Kind {
	case probe.Self:
		return probe.Outcome{ID: p.ID, Servers: []string{"10.96.0.10"}, Links: []probe.Link{{Name: "eth0", Up: true, MTU: 1450}}}
	case probe.DNS:
		o.Addresses = []string{"10.96.0.1"}
		if strings.HasPrefix(p.To, headless) {
			o.Addresses = []string{"10.1.1.2", "10.1.2.2", "10.1.3.2"}
		}
		to = "dns"
	case probe.MTU:
		o.MTU, o.Passes = 1450, 1450
	}
	client := f.pods[from].Status.PodIPs[0].IP
	if strings.Contains(p.To, "[") {
		if client = fmt.Sprintf("fd16::%d", f.number(f.pods[from].Spec.NodeName)); f.pods[from].Labels["connectivity-test"] != roleHost {
			client = f.pods[from].Status.PodIPs[1].IP
		}
	}
	for range max(p.Times, 1) {
		if p.Kind == probe.TCP || p.Kind == probe.UDP || p.Kind == probe.MTU {
			o.Answers = append(o.Answers, probe.Answer{Server: to, Client: client})
		}
	}
	if f.broken != nil {
		f.broken(from, to, p, &o)
	}
	if p.Kind == probe.Hold {
		if o.Holds = f.noReclassif; !o.Holds {
			o.Symptom, o.Error = probe.Stalled, "stalled"
		}
		return o
	}
	if len(f.policies) > 0 && !f.unenforced && !f.allowed(from, to, port) {
		return probe.Outcome{ID: p.ID, Failed: 1, Symptom: probe.Silence, Error: "timeout"}
	}
	return o
}

// allowed reports whether the test's policies allow a connection.
func (f *fake) allowed(from, to, port string) bool {
	if strings.HasPrefix(to, rolePeer) && (port == "8080" || port == "8082" || port == "8083" && from != podName(rolePod, "node-1")) {
		return false
	}
	return !strings.HasPrefix(from, rolePeer) || port == "8081" && strings.HasPrefix(to, rolePod)
}

// behind returns the server that answers at a probe's address, and the port.
func (f *fake) behind(from string, p *probe.Probe) (server, port string) {
	host, port, err := net.SplitHostPort(p.To)
	if err != nil {
		host = p.To
	}
	for _, pod := range f.pods {
		for _, ip := range pod.Status.PodIPs {
			if ip.IP == host && pod.Labels["connectivity-test"] != roleHost {
				return pod.Name, port
			}
		}
	}
	if a, err := netip.ParseAddr(host); err == nil && port == "28571" {
		return podName(roleHost, fmt.Sprintf("node-%d", a.AsSlice()[a.BitLen()/8-1])), port
	}
	if s := f.services[internalLocal]; s != nil && slices.Contains(s.Spec.ClusterIPs, host) {
		return podName(rolePod, f.pods[from].Spec.NodeName), port
	}
	return podName(rolePod, "node-1"), port
}

// Status implements Agents.
func (f *fake) Status(_ context.Context, node, _ string) (*status.Status, error) {
	st, known := f.trouble[node]
	if known && st == nil {
		return nil, errors.New("no agent answers")
	}
	if known {
		return st, nil
	}
	st = &status.Status{Node: node, InSync: true, Ready: true, Healthy: true, VPP: status.VPP{Connected: true, Version: "25.10"}}
	for name := range f.services {
		st.Services = append(st.Services, status.Service{Name: testNamespace + "/" + name, State: "CONFIGURED"})
	}
	st.Services = append(st.Services, status.Service{Name: "default/kubernetes", State: "CONFIGURED"})
	return st, nil
}

// Differences implements Agents.
func (f *fake) Differences(_ context.Context, node, _ string) ([]string, error) {
	return f.differences[node], nil
}

// Trace implements Agents.
func (f *fake) Trace(_ context.Context, questions []Question) ([]string, error) {
	out := make([]string, len(questions))
	for i, q := range questions {
		if f.traces != nil {
			out[i] = f.traces(q)
		}
	}
	return out, nil
}
