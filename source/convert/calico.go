package convert

import (
	"strings"

	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// calicoNetworkPolicy reads projectcalico.org/v3 NetworkPolicy. It applies to its namespace, and its selectors select
// there.
func calicoNetworkPolicy(spec *v3.GlobalSpec, ps *problems) *model.Policy {
	p := ps.calicoPolicy(&spec.Spec)
	p.Namespace, p.ApplyOnForward = p.ID.Namespace, true
	p.Selector = ps.subject(inNamespace(p.Namespace), func() string { return ps.calicoSubject(spec, p.Namespace) },
		"spec.selector", "spec.serviceAccountSelector")
	return p
}

// globalNetworkPolicy reads projectcalico.org/v3 GlobalNetworkPolicy.
func globalNetworkPolicy(spec *v3.GlobalSpec, ps *problems) *model.Policy {
	p := ps.calicoPolicy(&spec.Spec)
	p.Untracked, p.PreDNAT, p.ApplyOnForward = spec.DoNotTrack, spec.PreDNAT, spec.ApplyOnForward
	p.ApplyOnForward = p.ApplyOnForward || ps.Spoilt("spec.applyOnForward") // it may deny forwarded traffic, too
	ps.hostFlags(p)
	p.Selector = ps.subject("all()", func() string { return ps.calicoSubject(spec, "") },
		"spec.selector", "spec.namespaceSelector", "spec.serviceAccountSelector")
	return p
}

// calicoSubject checks the parts of a policy's subject and joins them. The joined selector is checked too: valid parts can be
// nested too deeply together.
func (ps *problems) calicoSubject(spec *v3.GlobalSpec, namespace string) string {
	known := len(ps.List)
	ps.valid("spec.selector", spec.Selector)
	ps.inherited("spec.namespaceSelector", spec.NamespaceSelector, model.PrefixNamespace)
	ps.inherited("spec.serviceAccountSelector", spec.ServiceAccountSelector, model.PrefixServiceAccount)
	if !ps.understood(known) {
		return ""
	}
	text, err := spec.Subject(namespace)
	if err == nil {
		_, err = selector.Parse(text)
	}
	if err != nil {
		ps.badSelector("spec", err)
	}
	return text
}

// hostFlags checks the flags for host endpoints. It reports contradicting flags and keeps them: policies with these flags
// are evaluated before the others.
func (ps *problems) hostFlags(p *model.Policy) {
	if p.Untracked && p.PreDNAT {
		ps.Add("spec.preDNAT", "must not be set together with doNotTrack", nil)
	}
	if (p.Untracked || p.PreDNAT) && !p.ApplyOnForward {
		ps.Add("spec.applyOnForward", "must be true with doNotTrack or preDNAT", nil)
		p.ApplyOnForward = true
	}
	if p.PreDNAT && p.Egress {
		ps.Add("spec.preDNAT", "must not be set on a policy for egress", nil)
	}
}

// calicoPolicy reads the fields that Calico's policies share.
func (ps *problems) calicoPolicy(spec *v3.Spec) *model.Policy {
	p := &model.Policy{
		ID:   model.PolicyID{Kind: model.PolicyKind(ps.Ref.Kind), Namespace: ps.Ref.Namespace, Name: ps.Ref.Name},
		Tier: spec.Tier,
	}
	if p.Tier == "" {
		p.Tier = model.TierDefault
	}
	switch {
	case ps.Spoilt("spec.order"):
		p.Order = first()
	case spec.Order != nil:
		p.Order = model.OrderOf(*spec.Order)
	}
	for i, hint := range spec.PerformanceHints {
		if hint != "AssumeNeededOnEveryNode" {
			ps.Add(check.ElementPath("spec.performanceHints", i), "must be AssumeNeededOnEveryNode", hint)
			continue
		}
		p.Everywhere = true
	}
	p.Ingress, p.Egress = ps.calicoTypes(spec)
	namespace := ps.Ref.Namespace
	if p.Ingress {
		p.InboundRules = ps.calicoRules("spec.ingress", true, spec.Ingress, namespace)
	}
	if p.Egress {
		p.OutboundRules = ps.calicoRules("spec.egress", false, spec.Egress, namespace)
	}
	if ps.Spoilt("spec.tier") {
		ps.everywhere(p)
	}
	return p
}

// everywhere makes a policy with an unreadable tier precede all others, and adds a deny at its end, as a denying tier has.
func (ps *problems) everywhere(p *model.Policy) {
	p.Tier, p.Order = model.TierAdmin, first()
	last := model.Rule{Action: model.ActionDeny, Origin: "end of tier"}
	if p.Ingress {
		p.InboundRules = append(p.InboundRules, last)
	}
	if p.Egress {
		p.OutboundRules = append(p.OutboundRules, last)
	}
}

// calicoTypes returns the directions that a policy governs: the listed ones, else those with rules, else ingress. If a
// listed one is unknown, it returns both, and the policy is distrusted.
func (ps *problems) calicoTypes(spec *v3.Spec) (ingress, egress bool) {
	if ps.Spoilt("spec.types") {
		return true, true
	}
	for i, t := range spec.Types {
		switch t {
		case "Ingress":
			ingress = true
		case "Egress":
			egress = true
		default:
			ps.Add(check.ElementPath("spec.types", i), "must be Ingress or Egress", t)
			ps.Distrusted = true
		}
	}
	switch {
	case ps.Distrusted:
		return true, true
	case len(spec.Types) == 0:
		egress = len(spec.Egress) > 0 || ps.Lost("spec.egress")
		ingress = !egress || len(spec.Ingress) > 0 || ps.Lost("spec.ingress")
	}
	return ingress, egress
}

// valid checks a selector; the empty text means no selector.
func (ps *problems) valid(field, text string) bool {
	if text == "" {
		return false
	}
	if _, err := selector.Parse(text); err != nil {
		ps.badSelector(field, err)
		return false
	}
	if strings.Contains(text, "global(") {
		ps.Add(field, "must not be global(), which selects namespaces of peers only", nil)
		return false
	}
	return true
}

func (ps *problems) badSelector(field string, err error) {
	why, value := err.Error(), ""
	if s, ok := err.(*selector.SyntaxError); ok {
		why, value = s.Reason, s.Text
	}
	ps.Add(field, "is not a selector: "+why, value)
}

// inherited checks a selector of namespaces or service accounts, whose labels endpoints inherit with prefix. Only a peer's
// namespaces may be global(), which would select everything here.
func (ps *problems) inherited(field, text, prefix string) {
	if strings.Contains(text, "global(") {
		ps.Add(field, "must not be global(), which selects namespaces of peers only", text)
		return
	}
	ps.prefixed(field, text, prefix)
}

// prefixed returns a checked selector as v3.Prefixed does; "" if it does not parse.
func (ps *problems) prefixed(field, text, prefix string) string {
	s, err := v3.Prefixed(text, prefix)
	if err != nil {
		ps.badSelector(field, err)
	}
	return s
}
