package encode

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
)

// encodePolicy writes a policy in a namespace, or a cluster-wide one (""). Kubernetes' policies are converted to Calico's form
// first. A staged policy has a separate name.
func encodePolicy(p *v3.Policy, namespace, name string, staged bool) (calico.KV, error) {
	out := datastore.Policy{
		Namespace: namespace, Order: p.Order, DoNotTrack: p.DoNotTrack, PreDNAT: p.PreDNAT, ApplyOnForward: p.ApplyOnForward,
		PerformanceHints: p.PerformanceHints, StagedAction: p.StagedAction,
	}
	for _, t := range p.Types {
		out.Types = append(out.Types, strings.ToLower(t))
	}
	key := datastore.Key{Kind: datastore.KeyTieredPolicy, Tier: tierOf(name), Name: name}
	if staged {
		key.Name = "staged:" + name
	}
	if namespace != "" {
		key.Name = namespace + "/" + key.Name
	}
	var err error
	if out.Selector, err = p.Subject(namespace); err != nil {
		return calico.KV{}, fmt.Errorf("%s: spec: %w", key, err)
	}
	if out.InboundRules, err = encodeRules(p.Ingress, namespace); err != nil {
		return calico.KV{}, fmt.Errorf("%s: spec.ingress: %w", key, err)
	}
	if out.OutboundRules, err = encodeRules(p.Egress, namespace); err != nil {
		return calico.KV{}, fmt.Errorf("%s: spec.egress: %w", key, err)
	}
	return datastore.NewKV(key, out)
}

// tierOf returns the tier in a policy's name, up to v3.31: the part before its first dot.
func tierOf(name string) string {
	for prefix, tier := range map[string]string{
		"knp.default.": model.TierDefault, "ossg.default.": model.TierDefault,
		"kanp." + model.TierAdmin + ".": model.TierAdmin, "kbanp." + model.TierBaseline + ".": model.TierBaseline,
	} {
		if strings.HasPrefix(name, prefix) {
			return tier
		}
	}
	if tier, _, ok := strings.Cut(name, "."); ok {
		return tier
	}
	return model.TierDefault
}

func encodeNetworkPolicy(o *networkingv1.NetworkPolicy) (calico.KV, error) {
	p, err := fromKubernetes(&o.Spec)
	if err != nil {
		return calico.KV{}, fmt.Errorf("NetworkPolicy %s/%s: %w", o.Namespace, o.Name, err)
	}
	return encodePolicy(p, o.Namespace, "knp.default."+o.Name, false)
}

// fromKubernetes converts a Kubernetes policy to Calico's form.
func fromKubernetes(spec *networkingv1.NetworkPolicySpec) (*v3.Policy, error) {
	order := model.OrderKubernetes().Value
	p := &v3.Policy{}
	p.Order, p.Selector = &order, podSelector(&spec.PodSelector)
	for _, t := range []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress} {
		if slices.Contains(spec.PolicyTypes, t) {
			p.Types = append(p.Types, string(t))
		}
	}
	if len(p.Types) == 0 {
		p.Types = []string{string(networkingv1.PolicyTypeIngress)}
	}
	for i := range spec.Ingress {
		r := &spec.Ingress[i]
		rules, err := kubernetesRules(r.From, r.Ports, true)
		if err != nil {
			return nil, fmt.Errorf("spec.ingress[%d]: %w", i, err)
		}
		p.Ingress = append(p.Ingress, rules...)
	}
	for i := range spec.Egress {
		r := &spec.Egress[i]
		rules, err := kubernetesRules(r.To, r.Ports, false)
		if err != nil {
			return nil, fmt.Errorf("spec.egress[%d]: %w", i, err)
		}
		p.Egress = append(p.Egress, rules...)
	}
	return p, nil
}

// kubernetesRules makes one rule of each peer with each protocol.
func kubernetesRules(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, ingress bool) ([]v3.Rule, error) {
	var by portsBy
	for i := range ports {
		in := &ports[i]
		protocol, list := corev1.ProtocolTCP, []model.PortMatch(nil)
		if in.Protocol != nil {
			protocol = *in.Protocol
		}
		if in.Port != nil {
			text := in.Port.String()
			if in.EndPort != nil {
				text = fmt.Sprintf("%s:%d", text, *in.EndPort)
			}
			p, ok := v3.ParsePort(text)
			if !ok {
				return nil, fmt.Errorf("ports[%d]: %w", i, errPort(text))
			}
			list = []model.PortMatch{p}
		}
		by.addPorts(protocolName(string(protocol)), list)
	}
	var ends []v3.Entity
	for i := range peers {
		e, err := kubernetesPeer(&peers[i])
		if err != nil {
			return nil, fmt.Errorf("peers[%d]: %w", i, err)
		}
		ends = append(ends, e)
	}
	if len(ends) == 0 {
		ends = []v3.Entity{{}}
	}
	return by.cross(ends, ingress, v3.Rule{Action: "Allow"}), nil
}

// kubernetesPeer reads a peer as Calico does: an address block overrides selectors.
func kubernetesPeer(in *networkingv1.NetworkPolicyPeer) (e v3.Entity, err error) {
	if in.IPBlock == nil {
		return v3.Entity{Selector: podSelector(in.PodSelector), NamespaceSelector: namespaceSelector(in.NamespaceSelector)}, nil
	}
	if e.Nets, err = encodeNets([]string{in.IPBlock.CIDR}); err == nil {
		e.NotNets, err = encodeNets(in.IPBlock.Except)
	}
	return e, err
}

// portsBy maps the protocols of a rule to their ports; a nil list means all ports.
type portsBy map[string][]model.PortMatch

func (by *portsBy) addPorts(protocol string, list []model.PortMatch) {
	if *by == nil {
		*by = portsBy{}
	}
	have, known := (*by)[protocol]
	switch {
	case list == nil:
		(*by)[protocol] = nil
	case !known || len(have) > 0:
		(*by)[protocol] = append(have, list...)
	}
}

// cross makes one rule like r of each peer with each protocol; no protocol means any protocol.
func (by portsBy) cross(ends []v3.Entity, ingress bool, r v3.Rule) []v3.Rule {
	if len(by) == 0 {
		by = portsBy{"": nil}
	}
	var out []v3.Rule
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if name != "" {
			r.Protocol = v3.ProtocolOf(name)
		}
		var ports []v3.Port
		for _, p := range simplify(by[name]) {
			ports = append(ports, v3.PortOf(p))
		}
		for _, e := range ends {
			if ingress {
				r.Source, r.Destination = e, v3.Entity{Ports: ports}
			} else {
				r.Destination = e
				r.Destination.Ports = ports
			}
			out = append(out, r)
		}
	}
	return out
}

// protocolName returns Calico's spelling of a protocol, if it has one.
func protocolName(s string) string {
	for _, known := range []string{"UDP", "TCP", "ICMP", "ICMPv6", "SCTP", "UDPLite"} {
		if strings.EqualFold(s, known) {
			return known
		}
	}
	return s
}

// podSelector converts a selector of pods; nil selects all pods.
func podSelector(s *metav1.LabelSelector) string {
	return strings.Join(append([]string{model.LabelOrchestrator + " == 'k8s'"}, labelTerms(s)...), " && ")
}

// namespaceSelector converts a selector of namespaces: nil selects none, an empty one selects all.
func namespaceSelector(s *metav1.LabelSelector) string {
	if s != nil && len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		return "all()"
	}
	return strings.Join(labelTerms(s), " && ")
}

func labelTerms(s *metav1.LabelSelector) []string {
	if s == nil {
		return nil
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		out = append(out, k+" == '"+s.MatchLabels[k]+"'")
	}
	for i := range s.MatchExpressions {
		e := &s.MatchExpressions[i]
		set := " { '" + strings.Join(e.Values, "', '") + "' }"
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			out = append(out, e.Key+" in"+set)
		case metav1.LabelSelectorOpNotIn:
			out = append(out, e.Key+" not in"+set)
		case metav1.LabelSelectorOpExists:
			out = append(out, "has("+e.Key+")")
		case metav1.LabelSelectorOpDoesNotExist:
			out = append(out, "! has("+e.Key+")")
		}
	}
	return out
}
