package policy

import (
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Reason explains why a packet passes or does not, in terms of the Kubernetes objects.
type Reason struct {
	Denied  bool
	Decides bool      // a policy, the end of a tier or a profile decides; false: the verdict does not depend on policies
	Text    string    // one line: "allowed by NetworkPolicy prod/web ingress rule 2"
	Policy  model.Ref // of a rule; zero otherwise
	Tier    string    // of a rule, and of the end of a tier
	Egress  bool      // direction, as the endpoint sees it
	Rule    string    // "ingress rule 2"; "" if no rule of a policy decides
	Trigger model.Ref // of the end of a tier: the first policy of the tier that applies
	Profile string    // of a rule of a profile: "kns.prod"
}

// String returns the line.
func (r Reason) String() string { return r.Text }

// Decision returns the reason in the form that flows and traces have.
func (r Reason) Decision() flows.Decision {
	d := flows.Decision{Text: r.Text, Tier: r.Tier, Rule: r.Rule, Profile: r.Profile}
	if r.Policy != (model.Ref{}) {
		d.Policy = r.Policy.String()
	}
	if r.Trigger != (model.Ref{}) {
		d.Trigger = r.Trigger.String()
	}
	return d
}

// Explain returns the reason behind a programmed rule. The rule is given by its number in the list of an interface (output: the list
// for packets that leave through it); -1 is the end of the list. False: no such rule was programmed.
func (p *Processor) Explain(iface string, output bool, place, rule int) (Reason, bool) {
	cause, ok := p.driver.Cause(iface, output, place, rule)
	if !ok {
		return Reason{}, false
	}
	if cause.Endpoint == "" {
		cause.Endpoint = p.podBehind(iface)
	}
	return p.reason(cause), true
}

// podBehind returns the local pod of an interface, "namespace/name"; "" if the interface has none or several.
func (p *Processor) podBehind(iface string) string {
	found := ""
	for id, pod := range p.local {
		here := p.names[id.String()] == iface
		for _, a := range pod.IPs {
			here = here || p.where[a] == iface
		}
		if here && found != "" {
			return ""
		}
		if here {
			found = id.String()
		}
	}
	return found
}

func (p *Processor) reason(c dataplane.Cause) Reason {
	r := Reason{Denied: c.Denied, Decides: c.Kind != dataplane.CauseStatic && c.Kind != dataplane.CauseIsolated && c.Kind != dataplane.CauseSource, Tier: c.Tier, Egress: c.Egress}
	verb := "allowed"
	if c.Denied {
		verb = "denied"
	}
	switch c.Kind {
	case dataplane.CauseRule:
		r.Policy, r.Rule = p.PolicyRef(c.Tier, c.Policy), p.ruleName(c)
		r.Text = fmt.Sprintf("%s by %s %s", verb, r.Policy, r.Rule)
	case dataplane.CauseEndOfTier:
		refs := p.tierRefs(c)
		if r.Text = verb + ": " + p.endOfTier(c, refs); len(refs) > 0 {
			r.Trigger = refs[0]
		}
	case dataplane.CauseProfileRule:
		r.Text, r.Profile = verb+": "+p.byProfile(c), c.Profile
	case dataplane.CauseNoMatch:
		if !c.Denied { // for forwarded traffic
			r.Text = fmt.Sprintf("%s: no policy of %s denies it", verb, c.Endpoint)
			break
		}
		r.Text = fmt.Sprintf("%s: neither policy nor profile of %s allows it for %s", verb, c.Endpoint, direction(c.Egress))
	case dataplane.CauseIsolated:
		r.Text = fmt.Sprintf("%s: %s is isolated until its policies are known", verb, endpointText(c))
	case dataplane.CauseDown:
		r.Text = fmt.Sprintf("%s: %s is administratively down", verb, endpointText(c))
	case dataplane.CauseSource:
		r.Text = fmt.Sprintf("%s: the source is not an address of %s", verb, endpointText(c))
	default:
		r.Text = verb + ": " + c.Text
	}
	return r
}

func direction(egress bool) string {
	if egress {
		return "egress"
	}
	return "ingress"
}

func endpointText(c dataplane.Cause) string {
	if c.Endpoint == "" {
		return "the interface"
	}
	return c.Endpoint
}

// PolicyRef returns the object behind a policy's name on the wire.
func (p *Processor) PolicyRef(tier, name string) model.Ref {
	if obj, ok := p.graph.Origin(tier, name); ok {
		return obj.Ref()
	}
	if p.stream != nil {
		return model.PolicyIDOf(tier, name).Ref()
	}
	return model.Ref{Kind: "Policy", Name: tier + "/" + name} // deleted since, but still programmed
}

// ProfileRef returns the object behind a profile on the wire.
func ProfileRef(name string) model.Ref {
	if ns, sa, ok := model.ProfileServiceAccount(name); ok {
		return model.Ref{Kind: model.KindServiceAccount, Namespace: ns, Name: sa}
	}
	if ns, ok := model.ProfileNamespace(name); ok {
		return model.Ref{Kind: model.KindNamespace, Name: ns}
	}
	return model.Ref{Kind: model.KindProfile, Name: name}
}

// ruleName returns "ingress rule 2", numbered as in the object.
func (p *Processor) ruleName(c dataplane.Cause) string {
	var id string
	if rules := rulesOf(p.sent.policies[model.WireName{Tier: c.Tier, Name: c.Policy}], c.Egress); c.Rule >= 0 && c.Rule < len(rules) && p.stream == nil { // Felix's ids are hashes
		id = rules[c.Rule].RuleId
	}
	if id == "" {
		id = fmt.Sprintf("rule %d", c.Rule+1)
	}
	return named(id, c.Egress)
}

// named prefixes the name of a rule with the direction, if the name lacks it.
func named(id string, egress bool) string {
	if strings.HasPrefix(id, "ingress ") || strings.HasPrefix(id, "egress ") {
		return id
	}
	return direction(egress) + " " + id
}

// endOfTier names the policies that apply and do not decide.
func (p *Processor) endOfTier(c dataplane.Cause, refs []model.Ref) string {
	plain := c.Tier == model.TierDefault && len(refs) > 0
	for _, ref := range refs {
		plain = plain && ref.Kind == model.Kind(model.KindNetworkPolicy)
	}
	if plain {
		verb := "isolates"
		if len(refs) > 1 {
			verb = "isolate"
		}
		return fmt.Sprintf("%s %s %s for %s and no rule allows it", refsText(refs), verb, c.Endpoint, direction(c.Egress))
	}
	text := fmt.Sprintf("end of tier %s", c.Tier)
	if len(refs) > 0 {
		text += fmt.Sprintf(", %s of %s is governed by %s and no rule decides", direction(c.Egress), c.Endpoint, refsText(refs))
	}
	return text
}

// tierRefs returns the enforced policies of a tier that apply to the endpoint, in order.
func (p *Processor) tierRefs(c dataplane.Cause) []model.Ref {
	var out []model.Ref
	seen := map[string]bool{}
	for _, forward := range []bool{false, true} {
		for _, tier := range p.sent.tiers(c.Endpoint, c.Host, forward) {
			if tier.Name != c.Tier {
				continue
			}
			for _, name := range policiesOf(tier, c.Egress) {
				if !seen[name] && !staged(name) {
					seen[name] = true
					out = append(out, p.PolicyRef(tier.Name, name))
				}
			}
		}
		if !c.Host {
			break
		}
	}
	return out
}

// staged reports whether a policy on the wire is listed and not enforced (Felix v3.31 marks such names).
func staged(name string) bool {
	_, last, found := strings.Cut(name, "/")
	if !found {
		last = name
	}
	return strings.HasPrefix(last, "staged:")
}

// refsText returns "NetworkPolicy prod/a", "NetworkPolicy prod/a, prod/b", "NetworkPolicy prod/a, prod/b, prod/c and 2 more".
func refsText(refs []model.Ref) string {
	const most = 3
	var b strings.Builder
	for i, ref := range refs {
		switch {
		case i == most:
			fmt.Fprintf(&b, " and %d more", len(refs)-most)
			return b.String()
		case i > 0 && ref.Kind == refs[i-1].Kind:
			b.WriteString(", " + strings.TrimPrefix(ref.String(), string(ref.Kind)+" "))
		case i > 0:
			b.WriteString(", " + ref.String())
		default:
			b.WriteString(ref.String())
		}
	}
	return b.String()
}

// byProfile returns the reason when no policy decides. Users know Calico's profiles as namespaces, so the text says Namespace.
func (p *Processor) byProfile(c dataplane.Cause) string {
	selected := false
	for _, tier := range p.sent.tiers(c.Endpoint, c.Host, false) {
		selected = selected || len(enforced(tier, c.Egress)) > 0
	}
	_, ofNamespace := model.ProfileNamespace(c.Profile)
	switch {
	case !selected && ofNamespace:
		return fmt.Sprintf("no policy selects %s for %s", c.Endpoint, direction(c.Egress))
	case ofNamespace:
		return fmt.Sprintf("no policy of %s decides for %s", c.Endpoint, direction(c.Egress))
	}
	return fmt.Sprintf("Profile %s %s rule %d", c.Profile, direction(c.Egress), c.Rule+1)
}

func enforced(t *felix.TierInfo, egress bool) []string {
	var out []string
	for _, name := range policiesOf(t, egress) {
		if !staged(name) {
			out = append(out, name)
		}
	}
	return out
}
