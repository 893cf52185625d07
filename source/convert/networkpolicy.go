package convert

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// networkPolicy reads networking.k8s.io/v1 NetworkPolicy, or the same spec in a staged policy, into the form Calico gives
// it.
func networkPolicy(kind model.PolicyKind, spec *networkingv1.NetworkPolicySpec, ps *problems) *model.Policy {
	p := &model.Policy{
		ID:   model.PolicyID{Kind: kind, Namespace: ps.Ref.Namespace, Name: ps.Ref.Name},
		Tier: model.TierDefault, Order: model.OrderKubernetes(), Namespace: ps.Ref.Namespace,
		ApplyOnForward: true, // as Calico sets it for every policy of a namespace
	}
	p.Ingress, p.Egress = ps.policyTypes(spec)
	if p.Ingress && !ps.Lost("spec.ingress") {
		p.InboundRules = ps.convertRules("spec.ingress", "ingress", len(spec.Ingress), 0, func(f string, i int) (model.Action, []model.Rule) {
			r := &spec.Ingress[i]
			return model.ActionAllow, cross(true, ps.peers(f+".from", r.From), ps.npPorts(f+".ports", r.Ports))
		})
	}
	if p.Egress && !ps.Lost("spec.egress") {
		p.OutboundRules = ps.convertRules("spec.egress", "egress", len(spec.Egress), 0, func(f string, i int) (model.Action, []model.Rule) {
			r := &spec.Egress[i]
			return model.ActionAllow, cross(false, ps.peers(f+".to", r.To), ps.npPorts(f+".ports", r.Ports))
		})
	}
	pods := ps.subject(onlyPods, func() string { return ps.podSelector("spec.podSelector", &spec.PodSelector) }, "spec.podSelector")
	p.Selector = "(" + pods + ") && " + inNamespace(p.Namespace)
	return p
}

// policyTypes returns the directions that a policy isolates: the listed ones, else ingress, and egress if it has egress
// rules. If a listed one is unknown, it returns both, and the policy is distrusted: its rules may mean something else.
func (ps *problems) policyTypes(spec *networkingv1.NetworkPolicySpec) (ingress, egress bool) {
	if ps.Spoilt("spec.policyTypes") {
		return true, true
	}
	for i, t := range spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			ingress = true
		case networkingv1.PolicyTypeEgress:
			egress = true
		default:
			ps.Add(check.ElementPath("spec.policyTypes", i), "must be Ingress or Egress", string(t))
			ps.Distrusted = true
		}
	}
	switch {
	case ps.Distrusted:
		return true, true
	case len(spec.PolicyTypes) == 0:
		return true, len(spec.Egress) > 0 || ps.Lost("spec.egress")
	}
	return ingress, egress
}

func (ps *problems) peers(field string, list []networkingv1.NetworkPolicyPeer) []model.Peer {
	var out []model.Peer
	for i := range list {
		out = append(out, ps.peer(check.ElementPath(field, i), &list[i]))
	}
	return out
}

// peer reads one peer. A pod selector without a namespace selector selects in the policy's own namespace.
func (ps *problems) peer(field string, in *networkingv1.NetworkPolicyPeer) model.Peer {
	bySelector := in.PodSelector != nil || in.NamespaceSelector != nil
	switch {
	case in.IPBlock != nil && bySelector:
		ps.Add(field, "must not have an ipBlock together with selectors", nil)
	case in.IPBlock != nil:
		p := model.Peer{}
		if cidr := ps.Prefix(field+".ipBlock.cidr", in.IPBlock.CIDR); cidr.IsValid() {
			p.Nets = append(p.Nets, cidr)
			p.NotNets = ps.except(field+".ipBlock.except", in.IPBlock.Except, cidr)
		}
		return p
	case !bySelector:
		ps.Add(field, "must have a podSelector, a namespaceSelector or an ipBlock", nil)
	default:
		namespaces, pods := inNamespace(ps.Ref.Namespace), ps.podSelector(field+".podSelector", in.PodSelector)
		original := ""
		if in.NamespaceSelector != nil {
			namespaces = ps.namespaceSelector(field+".namespaceSelector", in.NamespaceSelector)
			original = namespaces
		}
		return model.Peer{
			Selector:         "(" + namespaces + ") && (" + pods + ")",
			OriginalSelector: pods, OriginalNamespaceSelector: original,
		}
	}
	return model.Peer{}
}

func (ps *problems) npPorts(field string, list []networkingv1.NetworkPolicyPort) []protocolPorts {
	var ports portList
	for i := range list {
		in, f := &list[i], check.ElementPath(field, i)
		protocol := model.TCP
		if in.Protocol != nil {
			protocol = ps.Protocol(f+".protocol", *in.Protocol)
		}
		ports.addPort(protocol, ps.npPort(f, in))
	}
	return ports.portsByProtocol()
}

// npPort reads a port: a number, a range, a name, or any port (the zero value).
func (ps *problems) npPort(field string, in *networkingv1.NetworkPolicyPort) model.PortMatch {
	switch {
	case in.Port == nil && in.EndPort != nil:
		ps.Add(field+".endPort", "needs a port", *in.EndPort)
	case in.Port == nil:
	case in.Port.Type == intstr.String:
		if in.EndPort != nil {
			ps.Add(field+".endPort", "needs a port that is a number", *in.EndPort)
		}
		return ps.containerPortName(field+".port", in.Port.StrVal)
	case in.EndPort != nil:
		return ps.portRange(field+".port", in.Port.IntVal, field+".endPort", *in.EndPort)
	default:
		n := ps.ReadPort(field+".port", in.Port.IntVal)
		return model.PortMatch{First: n, Last: n}
	}
	return model.PortMatch{}
}

// containerPortName reads the name of a container port.
func (ps *problems) containerPortName(field, s string) model.PortMatch {
	if len(validation.IsValidPortName(s)) > 0 {
		ps.Add(field, "must be a port name: at most 15 lower-case letters, digits and '-', with a letter among them", s)
	}
	return model.PortMatch{Name: s}
}
