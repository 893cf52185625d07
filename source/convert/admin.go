package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// Limits of policy.networking.k8s.io.
const (
	maxPriority     = 1000
	maxAdminRules   = 100 // rules, peers and ports of v1alpha1
	maxClusterRules = 25  // rules, peers and protocols of v1alpha2
	maxNetworks     = 25
)

// adminReader reads one of the three kinds of policy.networking.k8s.io. They differ in limits and in the names of actions.
type adminReader struct {
	*problems
	policy  *model.Policy
	most    int    // most rules of a direction, peers and ports of a rule
	allow   string // the action that allows
	pass    bool   // the kind has an action Pass
	outside bool   // the current rule has a peer without container ports
}

func newAdminReader(ps *problems, tier string) *adminReader {
	return &adminReader{
		problems: ps, most: maxAdminRules, allow: "Allow", pass: true,
		policy: &model.Policy{ID: model.PolicyID{Kind: model.PolicyKind(ps.Ref.Kind), Name: ps.Ref.Name}, Tier: tier},
	}
}

func adminNetworkPolicy(o *adminPolicy, ps *problems) *model.Policy {
	r := newAdminReader(ps, model.TierAdmin)
	r.priority(o.Spec.Priority)
	r.inbound(len(o.Spec.Ingress), func(f string, i int) (model.Action, []model.Rule) {
		in := &o.Spec.Ingress[i]
		return r.buildRule(f+".from", true, in.Action, r.ingressPeers(f+".from", in.From), r.adminPorts(f+".ports", in.Ports))
	})
	r.outbound(len(o.Spec.Egress), func(f string, i int) (model.Action, []model.Rule) {
		in := &o.Spec.Egress[i]
		return r.buildRule(f+".to", false, in.Action, r.namedPeers(f+".to", in.To), r.adminPorts(f+".ports", in.Ports))
	})
	return r.finish(&o.Spec.Subject)
}

func baselineAdminNetworkPolicy(o *baselinePolicy, ps *problems) *model.Policy {
	r := newAdminReader(ps, model.TierBaseline)
	r.pass = false
	if o.Name != "" && o.Name != "default" {
		r.Add("metadata.name", `must be "default"`, o.Name)
	}
	r.inbound(len(o.Spec.Ingress), func(f string, i int) (model.Action, []model.Rule) {
		in := &o.Spec.Ingress[i]
		return r.buildRule(f+".from", true, in.Action, r.ingressPeers(f+".from", in.From), r.adminPorts(f+".ports", in.Ports))
	})
	r.outbound(len(o.Spec.Egress), func(f string, i int) (model.Action, []model.Rule) {
		in := &o.Spec.Egress[i]
		return r.buildRule(f+".to", false, in.Action, r.baselinePeers(f+".to", in.To), r.adminPorts(f+".ports", in.Ports))
	})
	return r.finish(&o.Spec.Subject)
}

func clusterNetworkPolicy(o *clusterPolicy, ps *problems) *model.Policy {
	r := newAdminReader(ps, model.TierKubeAdmin)
	r.most, r.allow = maxClusterRules, "Accept"
	r.priority(o.Spec.Priority)
	switch o.Spec.Tier {
	case "Admin":
	case "Baseline":
		r.policy.Tier = model.TierKubeBaseline
	default:
		r.misplaced("spec.tier", "must be Admin or Baseline", o.Spec.Tier)
	}
	r.inbound(len(o.Spec.Ingress), func(f string, i int) (model.Action, []model.Rule) {
		in := &o.Spec.Ingress[i]
		return r.buildRule(f+".from", true, in.Action, r.ingressPeers(f+".from", in.From), r.protocols(f+".protocols", in.Protocols))
	})
	r.outbound(len(o.Spec.Egress), func(f string, i int) (model.Action, []model.Rule) {
		in := &o.Spec.Egress[i]
		return r.buildRule(f+".to", false, in.Action, r.namedPeers(f+".to", in.To), r.protocols(f+".protocols", in.Protocols))
	})
	return r.finish(&o.Spec.Subject)
}

func (r *adminReader) priority(n *int32) {
	switch {
	case n == nil:
		r.misplaced("spec.priority", "is missing", nil)
	case *n < 0 || *n > maxPriority:
		r.misplaced("spec.priority", fmt.Sprintf("must be 0 to %d", maxPriority), *n)
	default:
		r.policy.Order = model.OrderOf(float64(*n))
	}
}

// misplaced records a problem of the policy's place among the others. The policy then precedes all others and is
// distrusted.
func (r *adminReader) misplaced(field, why string, value any) {
	if !r.Lost(field) {
		r.Add(field, why, value)
	}
	r.Distrusted, r.policy.Order = true, first()
}

func (r *adminReader) inbound(n int, one func(field string, i int) (model.Action, []model.Rule)) {
	r.policy.InboundRules = r.convertRules("spec.ingress", "ingress", n, r.most, one)
}

func (r *adminReader) outbound(n int, one func(field string, i int) (model.Action, []model.Rule)) {
	r.policy.OutboundRules = r.convertRules("spec.egress", "egress", n, r.most, one)
}

// finish reads the subject. A policy governs the directions it has rules for. A policy without rules governs both, which
// changes nothing in a tier that ends with Pass.
func (r *adminReader) finish(subject *AdminSubject) *model.Policy {
	p := r.policy
	p.Selector = r.subject("("+onlyPods+") && "+inAnyNamespace, func() string { return r.subjectPods("spec.subject", subject) }, "spec.subject")
	p.Ingress, p.Egress = len(p.InboundRules) > 0, len(p.OutboundRules) > 0
	return p
}

// buildRule builds a rule from its parts, which are already read.
func (r *adminReader) buildRule(peersField string, inbound bool, action string, peers []model.Peer, ports []protocolPorts) (model.Action, []model.Rule) {
	r.checkCount(peersField, len(peers))
	outside := r.outside
	r.outside = false
	named := slices.ContainsFunc(ports, func(p protocolPorts) bool {
		return slices.ContainsFunc(p.ports, func(m model.PortMatch) bool { return m.Name != "" })
	})
	if outside && named {
		r.Add(peersField, "must be pods or namespaces only, for there is a named port: networks and nodes have none", nil)
	}
	field := peersField[:strings.LastIndexByte(peersField, '.')]
	return r.action(field+".action", action), cross(inbound, peers, ports)
}

// action reads a rule's action. For a wrong one it returns the empty action, which does not allow.
func (r *adminReader) action(field, s string) model.Action {
	switch {
	case s == r.allow:
		return model.ActionAllow
	case s == "Deny":
		return model.ActionDeny
	case s == "Pass" && r.pass:
		return model.ActionPass
	case r.pass:
		r.Add(field, "must be "+r.allow+", Deny or Pass", s)
	default:
		r.Add(field, "must be "+r.allow+" or Deny", s)
	}
	return ""
}

// pods reads a selection of pods: a selector of namespaces, and a selector of pods in them.
func (r *adminReader) pods(field string, s *AdminSubject) (namespaces, pods string) {
	switch {
	case s.Namespaces != nil && s.Pods == nil:
		return r.namespaceSelector(field+".namespaces", s.Namespaces), onlyPods
	case s.Pods != nil && s.Namespaces == nil:
		return r.namespaceSelector(field+".pods.namespaceSelector", &s.Pods.NamespaceSelector),
			r.podSelector(field+".pods.podSelector", &s.Pods.PodSelector)
	}
	r.Add(field, "must have exactly one of namespaces and pods", nil)
	return inAnyNamespace, onlyPods
}

func (r *adminReader) subjectPods(field string, s *AdminSubject) string {
	namespaces, pods := r.pods(field, s)
	return "(" + pods + ") && (" + namespaces + ")"
}

func (r *adminReader) podPeer(field string, s *AdminSubject) model.Peer {
	namespaces, pods := r.pods(field, s)
	return model.Peer{
		Selector:         "(" + namespaces + ") && (" + pods + ")",
		OriginalSelector: pods, OriginalNamespaceSelector: namespaces,
	}
}

func (r *adminReader) ingressPeers(field string, list []AdminSubject) []model.Peer {
	var out []model.Peer
	for i := range list {
		out = append(out, r.podPeer(check.ElementPath(field, i), &list[i]))
	}
	return out
}

func (r *adminReader) baselinePeers(field string, list []egressPeer) []model.Peer {
	var out []model.Peer
	for i := range list {
		out = append(out, r.egressPeer(check.ElementPath(field, i), &list[i], nil))
	}
	return out
}

func (r *adminReader) namedPeers(field string, list []namedPeer) []model.Peer {
	var out []model.Peer
	for i := range list {
		out = append(out, r.egressPeer(check.ElementPath(field, i), &list[i].egressPeer, list[i].DomainNames))
	}
	return out
}

// egressPeer reads a peer that may be outside of the cluster. No data plane here can resolve a domain name at packet time,
// so a rule with one is not understood.
func (r *adminReader) egressPeer(field string, in *egressPeer, domains *[]string) model.Peer {
	given := 0
	for _, is := range []bool{in.Namespaces != nil, in.Pods != nil, in.Nodes != nil, in.Networks != nil, domains != nil} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		r.Add(field, "must have exactly one of namespaces, pods, nodes and networks", nil)
	case domains != nil:
		r.Add(field+".domainNames", "is not supported: peers must be namespaces, pods, nodes or networks", nil)
	case in.Nodes != nil:
		r.outside = true
		return model.Peer{Selector: r.nodeSelector(field+".nodes", in.Nodes)}
	case in.Networks != nil:
		r.outside = true
		if n := len(*in.Networks); n < 1 || n > maxNetworks {
			r.Add(field+".networks", fmt.Sprintf("must have 1 to %d entries", maxNetworks), n)
			return model.Peer{}
		}
		return model.Peer{Nets: r.Prefixes(field+".networks", *in.Networks)}
	default:
		return r.podPeer(field, &in.AdminSubject)
	}
	return model.Peer{}
}

// adminPorts reads the ports of a rule. A number has one protocol; a name has the protocol of the container port. No list
// means all protocols.
func (r *adminReader) adminPorts(field string, list *[]AdminPort) []protocolPorts {
	var ports portList
	if list == nil {
		return ports.portsByProtocol()
	}
	r.checkCount(field, len(*list))
	for i := range *list {
		in, f := &(*list)[i], check.ElementPath(field, i)
		switch {
		case in.PortNumber != nil && in.NamedPort == nil && in.PortRange == nil:
			n := r.ReadPort(f+".portNumber.port", in.PortNumber.Port)
			ports.addPort(r.Protocol(f+".portNumber.protocol", in.PortNumber.Protocol), model.PortMatch{First: n, Last: n})
		case in.PortNumber == nil && in.NamedPort != nil && in.PortRange == nil:
			ports.addName(r.containerPortName(f+".namedPort", *in.NamedPort))
		case in.PortNumber == nil && in.NamedPort == nil && in.PortRange != nil:
			m := r.portRange(f+".portRange.start", in.PortRange.Start, f+".portRange.end", in.PortRange.End)
			ports.addPort(r.Protocol(f+".portRange.protocol", in.PortRange.Protocol), m)
		default:
			r.Add(f, "must have exactly one of portNumber, namedPort and portRange", nil)
		}
	}
	return ports.portsByProtocol()
}

func (r *adminReader) protocols(field string, list *[]clusterProtocol) []protocolPorts {
	var ports portList
	if list == nil {
		return ports.portsByProtocol()
	}
	r.checkCount(field, len(*list))
	for i := range *list {
		in, f, given := &(*list)[i], check.ElementPath(field, i), 0
		for _, p := range []struct {
			name     string
			protocol model.Protocol
			port     *clusterPort
		}{{".tcp", model.TCP, in.TCP}, {".udp", model.UDP, in.UDP}, {".sctp", model.SCTP, in.SCTP}} {
			if p.port != nil {
				given++
				ports.addPort(p.protocol, r.clusterPort(f+p.name, p.port))
			}
		}
		if in.DestinationNamedPort != nil {
			given++
			ports.addName(r.containerPortName(f+".destinationNamedPort", *in.DestinationNamedPort))
		}
		if given != 1 {
			r.Add(f, "must have exactly one of tcp, udp, sctp and destinationNamedPort", nil)
		}
	}
	return ports.portsByProtocol()
}

func (r *adminReader) clusterPort(field string, in *clusterPort) model.PortMatch {
	field += ".destinationPort"
	d := in.DestinationPort
	switch {
	case d == nil:
		r.Add(field, "is missing", nil)
	case d.Number != nil && d.Range == nil:
		n := r.ReadPort(field+".number", *d.Number)
		return model.PortMatch{First: n, Last: n}
	case d.Range != nil && d.Number == nil:
		m := r.portRange(field+".range.start", d.Range.Start, field+".range.end", d.Range.End)
		if m.First == m.Last && m.First != 0 {
			r.Add(field+".range.end", "must be greater than start", d.Range.End)
		}
		return m
	default:
		r.Add(field, "must have exactly one of number and range", nil)
	}
	return model.PortMatch{}
}

// checkCount requires at least one entry in a list that is present.
func (r *adminReader) checkCount(field string, n int) {
	if n < 1 || n > r.most {
		r.Add(field, fmt.Sprintf("must have 1 to %d entries", r.most), n)
	}
}
