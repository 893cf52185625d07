package convert

import (
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
)

// calicoNetworkPolicy reads projectcalico.org/v3 NetworkPolicy. It applies to its namespace, and its selectors select
// there.
func calicoNetworkPolicy(spec *calicoSpec, ps *problems) *model.Policy {
	p := ps.calicoPolicy(spec)
	p.Namespace, p.ApplyOnForward = p.ID.Namespace, true
	p.Selector = ps.subject(inNamespace(p.Namespace), func() string {
		text := inNamespace(p.Namespace)
		if ps.valid("spec.selector", spec.Selector) {
			text = "(" + spec.Selector + ") && " + text
		}
		return ps.composed("spec", ps.andAccounts(text, spec.ServiceAccountSelector))
	}, "spec.selector", "spec.serviceAccountSelector")
	return p
}

// globalNetworkPolicy reads projectcalico.org/v3 GlobalNetworkPolicy. If it selects by namespace or service account, it
// applies only to endpoints that have one; all() means these.
func globalNetworkPolicy(spec *globalSpec, ps *problems) *model.Policy {
	p := ps.calicoPolicy(&spec.calicoSpec)
	p.Untracked, p.PreDNAT, p.ApplyOnForward = spec.DoNotTrack, spec.PreDNAT, spec.ApplyOnForward
	p.ApplyOnForward = p.ApplyOnForward || ps.spoilt("spec.applyOnForward") // it may deny forwarded traffic, too
	ps.hostFlags(p)
	p.Selector = ps.subject("all()", func() string {
		text := ""
		if ps.valid("spec.selector", spec.Selector) {
			text = spec.Selector
		}
		if ns := ps.notGlobal("spec.namespaceSelector", spec.NamespaceSelector, model.PrefixNamespace); ns != "" {
			text = strings.ReplaceAll(and(text, ns), "all()", inAnyNamespace)
		}
		if spec.ServiceAccountSelector != "" {
			text = strings.ReplaceAll(ps.andAccounts(text, spec.ServiceAccountSelector), "all()", "has("+model.LabelServiceAccount+")")
		}
		return ps.composed("spec", text)
	}, "spec.selector", "spec.namespaceSelector", "spec.serviceAccountSelector")
	return p
}

// hostFlags checks the flags for host endpoints. It reports contradicting flags and keeps them: policies with these flags
// are evaluated before the others.
func (ps *problems) hostFlags(p *model.Policy) {
	if p.Untracked && p.PreDNAT {
		ps.add("spec.preDNAT", "must not be set together with doNotTrack", nil)
	}
	if (p.Untracked || p.PreDNAT) && !p.ApplyOnForward {
		ps.add("spec.applyOnForward", "must be true with doNotTrack or preDNAT", nil)
		p.ApplyOnForward = true
	}
	if p.PreDNAT && p.Egress {
		ps.add("spec.preDNAT", "must not be set on a policy for egress", nil)
	}
}

// calicoPolicy reads the fields that Calico's policies share.
func (ps *problems) calicoPolicy(spec *calicoSpec) *model.Policy {
	p := &model.Policy{
		ID:   model.PolicyID{Kind: model.PolicyKind(ps.ref.Kind), Namespace: ps.ref.Namespace, Name: ps.ref.Name},
		Tier: spec.Tier,
	}
	if p.Tier == "" {
		p.Tier = model.TierDefault
	}
	switch {
	case ps.spoilt("spec.order"):
		p.Order = first()
	case spec.Order != nil:
		p.Order = model.OrderOf(*spec.Order)
	}
	for i, hint := range spec.PerformanceHints {
		if hint != "AssumeNeededOnEveryNode" {
			ps.add(at("spec.performanceHints", i), "must be AssumeNeededOnEveryNode", hint)
			continue
		}
		p.Everywhere = true
	}
	p.Ingress, p.Egress = ps.calicoTypes(spec)
	namespace := ps.ref.Namespace
	if p.Ingress {
		p.InboundRules = ps.calicoRules("spec.ingress", true, spec.Ingress, namespace)
	}
	if p.Egress {
		p.OutboundRules = ps.calicoRules("spec.egress", false, spec.Egress, namespace)
	}
	if ps.spoilt("spec.tier") {
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
func (ps *problems) calicoTypes(spec *calicoSpec) (ingress, egress bool) {
	if ps.spoilt("spec.types") {
		return true, true
	}
	for i, t := range spec.Types {
		switch t {
		case "Ingress":
			ingress = true
		case "Egress":
			egress = true
		default:
			ps.add(at("spec.types", i), "must be Ingress or Egress", t)
			ps.distrusted = true
		}
	}
	switch {
	case ps.distrusted:
		return true, true
	case len(spec.Types) == 0:
		egress = len(spec.Egress) > 0 || ps.lost("spec.egress")
		ingress = !egress || len(spec.Ingress) > 0 || ps.lost("spec.ingress")
	}
	return ingress, egress
}

// convert reads a staged policy. A policy that stages a removal converts to nothing.
func (o *stagedPolicy) convert(ps *problems) *model.Policy {
	if !ps.staged(o.Spec.StagedAction) {
		return nil
	}
	return calicoNetworkPolicy(&o.Spec.calicoSpec, ps)
}

func (o *stagedGlobalPolicy) convert(ps *problems) *model.Policy {
	if !ps.staged(o.Spec.StagedAction) {
		return nil
	}
	return globalNetworkPolicy(&o.Spec.globalSpec, ps)
}

func (o *stagedKubernetesPolicy) convert(ps *problems) *model.Policy {
	if !ps.staged(o.Spec.StagedAction) {
		return nil
	}
	return networkPolicy(model.KindStagedKubernetesPolicy, &o.Spec.NetworkPolicySpec, ps)
}

// staged reports whether a staged policy has rules to show, as opposed to staging a removal.
func (ps *problems) staged(action string) bool {
	switch action {
	case "", "Set", "Learn", "Ignore":
		return true
	case "Delete":
		return false
	}
	ps.add("spec.stagedAction", "must be Set, Delete, Learn or Ignore", action)
	return true
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
		ps.add(field, "must not be global(), which selects namespaces of peers only", nil)
		return false
	}
	return true
}

func (ps *problems) badSelector(field string, err error) {
	why, value := err.Error(), ""
	if s, ok := err.(*selector.SyntaxError); ok {
		why, value = s.Reason, s.Text
	}
	ps.add(field, "is not a selector: "+why, value)
}

// composed checks a joined selector: valid parts can be nested too deeply together.
func (ps *problems) composed(field, text string) string {
	if _, err := selector.Parse(text); err != nil {
		ps.badSelector(field, err)
	}
	return text
}

// prefixed converts a selector of namespaces or service accounts to a selector of the endpoints that inherit their labels.
func (ps *problems) prefixed(field, text, prefix string) string {
	if text == "" {
		return ""
	}
	s, err := selector.ParsePrefixed(text, prefix)
	if err != nil {
		ps.badSelector(field, err)
		return ""
	}
	return s.String()
}

// notGlobal is prefixed for places where global() would select everything: only a peer's namespaces may be global().
func (ps *problems) notGlobal(field, text, prefix string) string {
	if strings.Contains(text, "global(") {
		ps.add(field, "must not be global(), which selects namespaces of peers only", text)
		return ""
	}
	return ps.prefixed(field, text, prefix)
}

func (ps *problems) andAccounts(text, accounts string) string {
	return and(text, ps.notGlobal("spec.serviceAccountSelector", accounts, model.PrefixServiceAccount))
}

// and joins two selectors, each of which may be empty.
func and(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return "(" + a + ") && " + b
}
