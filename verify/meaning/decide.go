package meaning

import (
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
)

// Decision is what the policies of a pod decide about a header in one direction.
type Decision struct {
	Allowed bool
	// Policies is the policy whose rule decides, or the policies of the tier at whose end the packet is denied, or nil.
	Policies []*model.Policy
	Tier     string
	Rule     string // "ingress rule 2"; "": no rule decides
	Text     string // one line
	// Doubt says what could not be evaluated before the decision; "": nothing.
	Doubt string
}

// Reason is one line that says which rule decides about a header in a direction of a pod.
func (c *Cluster) Reason(p *Pod, egress bool, h space.Header) string {
	return c.Decide(p, egress, h).Text
}

// Decide evaluates the policies of a direction of a pod.
func (c *Cluster) Decide(p *Pod, egress bool, h space.Header) (d Decision) {
	direction, governed := "ingress", false
	if egress {
		direction = "egress"
	}
tiers:
	for _, t := range c.tiers {
		policies := c.governing(t.Name, p, egress)
		if len(policies) == 0 {
			continue
		}
		governed = true
		for _, q := range policies {
			switch action := c.findRule(q, egress, h, &d); {
			case action == denies || action == allows:
				d.Allowed, d.Policies, d.Tier = action == allows, []*model.Policy{q}, t.Name
				word := "denied"
				if d.Allowed {
					word = "allowed"
				}
				d.Text = fmt.Sprintf("%s by %s %s", word, q.ID, d.Rule)
				return d
			case action == passes:
				continue tiers
			}
		}
		if !t.DefaultAction.Passes() {
			var names []string
			for _, q := range policies {
				names = append(names, q.ID.String())
			}
			d.Policies, d.Tier = policies, t.Name
			d.Text = fmt.Sprintf("denied: no rule of %s allows it (%s of %s, tier %s)", strings.Join(names, ", "), direction, p.ID, t.Name)
			return d
		}
	}
	d.Allowed = true
	d.Text = fmt.Sprintf("allowed: no policy of %s decides for %s", p.ID, direction)
	if !governed {
		d.Text = fmt.Sprintf("allowed: no policy selects %s for %s", p.ID, direction)
	}
	return d
}

// findRule finds the first rule of a policy that decides about a header; 0: none. It notes the name of a rule that allows or denies, and what cannot be
// evaluated.
func (c *Cluster) findRule(q *model.Policy, egress bool, h space.Header, d *Decision) (action uint8) {
	rules, direction := rulesOf(q, egress), "ingress"
	if egress {
		direction = "egress"
	}
	for i := range rules {
		r := &rules[i]
		m, doubt := c.match(r)
		if doubt != "" && d.Doubt == "" {
			d.Doubt = fmt.Sprintf("%s: %s", q.ID, doubt)
		}
		if r.Action == model.ActionLog || !c.space.Contains(m, h) {
			continue
		}
		if r.Action.Passes() {
			return passes
		}
		if d.Rule = r.Origin; d.Rule == "" {
			d.Rule = fmt.Sprintf("%s rule %d", direction, i+1)
		}
		if r.Action.Allows() {
			return allows
		}
		return denies
	}
	return 0
}

// Governing are the policies that apply to a direction of a pod, in the order of their evaluation.
func (c *Cluster) Governing(p *Pod, egress bool) (out []*model.Policy) {
	for _, t := range c.tiers {
		out = append(out, c.governing(t.Name, p, egress)...)
	}
	return out
}
