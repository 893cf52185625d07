// Package recommend turns flows into NetworkPolicies that allow what was seen.
//
//	allowed flows of a namespace ─▶ workloads ─▶ per direction: peers, and the ports of each ─▶ one NetworkPolicy per workload
//
// Invariant: with the policies enforced, each allowed flow is still allowed, except those that Skipped names.
package recommend

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/flows"
)

// Prefix begins the names of recommended policies.
const Prefix = "recommended-"

// Policy is the policy of one workload. Ingress and Egress have the flows behind each rule of the object.
type Policy struct {
	Object          *networkingv1.NetworkPolicy
	Pods            []string // that were seen, "prod/web-0"
	Ingress, Egress []Backing
}

// Backing is the flows behind a rule.
type Backing struct {
	Flows       int
	Connections uint64
	Example     string // one of them: "prod/client -> prod/web:80"
}

// Result is what was made of flows.
type Result struct {
	Policies []Policy // sorted by workload
	Skipped  []string // flows that no rule was made for, with reasons
}

// workload is pods of one name, and what they were seen to do.
type workload struct {
	labels          map[string]string
	pods            map[string]bool
	ingress, egress map[string]*side // by peer
}

// side is one peer of a workload in one direction.
type side struct {
	peer  end
	ports map[port]bool
	all   bool // a protocol without ports: a rule of a NetworkPolicy cannot name it, so it names no ports
	Backing
}

type port struct {
	protocol string
	number   uint16
}

// Policies makes a policy for each workload of a namespace that an allowed flow begins or ends at. A direction without flows is not governed.
func Policies(list []flows.Flow, namespace string) *Result {
	r, m := &Result{}, &maker{namespace: namespace, labels: labelsOf(list), translated: map[dial]bool{}, workloads: map[string]*workload{}}
	for i := range list {
		if t := list[i].Translation; t != nil {
			m.translated[dial{list[i].Source.Address, t.Dialled}] = true
		}
	}
	for i := range list {
		if why := m.take(&list[i]); why != "" {
			r.Skipped = append(r.Skipped, fmt.Sprintf("%s: %s", pairText(&list[i]), why))
		}
	}
	slices.Sort(r.Skipped)
	r.Skipped = slices.Compact(r.Skipped)
	for _, name := range slices.Sorted(maps.Keys(m.workloads)) {
		r.Policies = append(r.Policies, m.workloads[name].makePolicy(namespace, name))
	}
	return r
}

type dial struct {
	client netip.Addr
	to     netip.AddrPort
}

type maker struct {
	namespace  string
	labels     map[string]map[string]string // of workloads: "prod/web"
	translated map[dial]bool                // connections whose endpoint is known
	workloads  map[string]*workload
}

// take adds a flow. The reason says why a flow of the namespace is left out.
func (m *maker) take(f *flows.Flow) (why string) {
	from, to := f.Source.Kind == flows.Pod && f.Source.Namespace == m.namespace, f.Destination.Kind == flows.Pod && f.Destination.Namespace == m.namespace
	switch {
	case f.Verdict != flows.Allowed || !from && !to:
		return ""
	case f.Source.Kind == f.Destination.Kind && f.Source.String() == f.Destination.String():
		return "" // a pod to itself passes regardless of policies
	case f.Destination.Kind == flows.Service && m.translated[dial{f.Source.Address, netip.AddrPortFrom(f.Destination.Address, f.Port)}]:
		return "" // the translated flow has the endpoint
	case f.Destination.Kind == flows.Service:
		return "no flow names the endpoint behind the Service"
	}
	if from {
		m.workload(&f.Source).note(&m.workload(&f.Source).egress, m.end(&f.Destination), f)
	}
	if to && !(f.Source.Kind == flows.Node && f.Source.Name == f.Destination.Node) { // a node reaches its own pods regardless of policies
		source := m.end(&f.Source)
		if t := f.Translation; t != nil && t.Source.Addr().IsValid() && t.Source.Addr() != f.Source.Address {
			source = end{address: t.Source.Addr()} // the receiver sees this address
		}
		m.workload(&f.Destination).note(&m.workload(&f.Destination).ingress, source, f)
	}
	return ""
}

func (m *maker) workload(p *flows.Peer) *workload {
	name := workloadOf(p)
	if m.workloads[name] == nil {
		m.workloads[name] = &workload{labels: m.labels[m.namespace+"/"+name], pods: map[string]bool{}}
	}
	m.workloads[name].pods[p.String()] = true
	return m.workloads[name]
}

// note adds a flow to a peer.
func (w *workload) note(direction *map[string]*side, peer end, f *flows.Flow) {
	if *direction == nil {
		*direction = map[string]*side{}
	}
	s := (*direction)[peer.key()]
	if s == nil {
		s = &side{peer: peer, ports: map[port]bool{}, Backing: Backing{Example: pairText(f)}}
		(*direction)[peer.key()] = s
	}
	s.Flows++
	s.Connections += f.Connections
	if f.Protocol == "TCP" || f.Protocol == "UDP" || f.Protocol == "SCTP" {
		s.ports[port{f.Protocol, f.Port}] = true
	} else {
		s.all = true
	}
}

// pairText is a flow without what differs between equal ones: "prod/client -> prod/web:80".
func pairText(f *flows.Flow) string {
	text := f.Source.String() + " -> " + f.Destination.String()
	if f.Port != 0 {
		text += fmt.Sprintf(":%d", f.Port)
	}
	return text + " " + f.Protocol
}

// makePolicy makes the object.
func (w *workload) makePolicy(namespace, name string) Policy {
	p := Policy{Pods: slices.Sorted(maps.Keys(w.pods))}
	o := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(name), Namespace: namespace},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: w.labels}},
	}
	if w.ingress != nil {
		o.Spec.PolicyTypes = append(o.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		for _, s := range sidesOf(w.ingress) {
			o.Spec.Ingress = append(o.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: s.peers(namespace), Ports: s.portList()})
			p.Ingress = append(p.Ingress, s.Backing)
		}
	}
	if w.egress != nil {
		o.Spec.PolicyTypes = append(o.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		for _, s := range sidesOf(w.egress) {
			o.Spec.Egress = append(o.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: s.peers(namespace), Ports: s.portList()})
			p.Egress = append(p.Egress, s.Backing)
		}
	}
	p.Object = o
	return p
}

// nameOf is a name for the policy of a workload: at most 253 characters.
func nameOf(workload string) string {
	return strings.TrimRight((Prefix + workload)[:min(len(Prefix+workload), 253)], "-.")
}
