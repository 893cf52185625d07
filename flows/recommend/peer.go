package recommend

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/flows"
)

// mostAddresses is how many addresses with the same ports stand in a rule. More become every address of their family.
const mostAddresses = 16

// end is the other end of a workload's flows: a workload, or addresses.
type end struct {
	namespace string // of a workload
	workload  string
	labels    map[string]string
	address   netip.Addr   // of a node, or outside
	more      []netip.Addr // addresses with the same ports
}

func (m *maker) end(p *flows.Peer) end {
	if p.Kind != flows.Pod {
		return end{address: p.Address}
	}
	name := workloadOf(p)
	return end{namespace: p.Namespace, workload: name, labels: m.labels[p.Namespace+"/"+name]}
}

func (e *end) key() string {
	if e.workload == "" {
		return "address " + e.address.String()
	}
	return "workload " + e.namespace + "/" + e.workload
}

func workloadOf(p *flows.Peer) string {
	if p.Workload != "" {
		return p.Workload
	}
	return p.Name
}

// generated are labels that differ between the pods of a workload, or between its versions.
var generated = []string{ // read only
	"pod-template-hash", "controller-revision-hash", "pod-template-generation", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "controller-uid", "job-name",
}

// labelsOf returns the labels that all seen pods of a workload have, by its namespace and name.
func labelsOf(list []flows.Flow) map[string]map[string]string {
	out := map[string]map[string]string{}
	for i := range list {
		for _, p := range []*flows.Peer{&list[i].Source, &list[i].Destination} {
			if p.Kind != flows.Pod {
				continue
			}
			name := p.Namespace + "/" + workloadOf(p)
			common, known := out[name]
			if !known {
				common = maps.Clone(p.Labels)
				maps.DeleteFunc(common, func(k, _ string) bool {
					return slices.Contains(generated, k) || strings.HasPrefix(k, "batch.kubernetes.io/")
				})
			}
			maps.DeleteFunc(common, func(k, v string) bool {
				now, has := p.Labels[k]
				return !has || now != v
			})
			out[name] = common
		}
	}
	return out
}

// sidesOf returns peers in the order of their keys. Addresses with the same ports are one.
func sidesOf(by map[string]*side) []*side {
	var out []*side
	same := map[string]*side{}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		s := by[key]
		if s.peer.workload != "" {
			out = append(out, s)
			continue
		}
		ports := fmt.Sprint(s.portTexts())
		first := same[ports]
		if first == nil {
			same[ports] = s
			s.peer.more = []netip.Addr{s.peer.address}
			out = append(out, s)
			continue
		}
		first.peer.more = append(first.peer.more, s.peer.address)
		first.Flows, first.Connections = first.Flows+s.Flows, first.Connections+s.Connections
	}
	return out
}

func (s *side) portTexts() (out []string) {
	if s.all {
		return nil
	}
	for p := range s.ports {
		out = append(out, fmt.Sprintf("%s/%05d", p.protocol, p.number))
	}
	slices.Sort(out)
	return out
}

// peers returns the peer as a rule names it.
func (s *side) peers(namespace string) []networkingv1.NetworkPolicyPeer {
	e := &s.peer
	if e.workload != "" {
		p := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: e.labels}}
		if e.namespace != namespace {
			p.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: e.namespace}}
		}
		return []networkingv1.NetworkPolicyPeer{p}
	}
	var out []networkingv1.NetworkPolicyPeer
	for _, cidr := range e.networks() {
		out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}})
	}
	return out
}

// networks are the addresses as networks.
func (e *end) networks() (out []string) {
	numbers := map[bool]int{}
	for _, a := range e.more {
		numbers[a.Is4()]++
	}
	for _, a := range e.more {
		text := netip.PrefixFrom(a, a.BitLen()).String()
		switch many := numbers[a.Is4()] > mostAddresses; {
		case many && a.Is4():
			text = "0.0.0.0/0"
		case many:
			text = "::/0"
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// portList returns the ports as a rule names them; none: all, of every protocol.
func (s *side) portList() []networkingv1.NetworkPolicyPort {
	if s.all {
		return nil
	}
	var out []networkingv1.NetworkPolicyPort
	list := slices.SortedFunc(maps.Keys(s.ports), func(a, b port) int {
		return strings.Compare(fmt.Sprintf("%s/%05d", a.protocol, a.number), fmt.Sprintf("%s/%05d", b.protocol, b.number))
	})
	for _, p := range list {
		protocol, number := corev1.Protocol(p.protocol), intstr.FromInt32(int32(p.number))
		out = append(out, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &number})
	}
	return out
}
