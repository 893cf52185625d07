package meaning

import (
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
)

// verdict is what the policies of one tier decide in one direction of a pod.
type verdict struct {
	allowed, passed, open space.Set // open: no rule matches
	doubts                []string
}

// Actions of rules, as verdicts about headers.
const (
	allows uint8 = 1 + iota
	passes
	denies
)

// Allowed is what policies allow in a direction of a pod: a set of headers without regard to the pod's own addresses. Doubts names what
// cannot be evaluated; the set is then not complete.
func (c *Cluster) Allowed(p *Pod, egress bool) (allowed space.Set, doubts []string) {
	s := c.space
	undecided := s.All()
	for _, t := range c.tiers {
		policies := c.governing(t.Name, p, egress)
		if len(policies) == 0 {
			continue
		}
		v := c.joinRules(policies, egress)
		doubts = append(doubts, v.doubts...)
		allowed = s.Union(allowed, s.Intersect(undecided, v.allowed))
		rest := v.passed
		if t.DefaultAction.Passes() {
			rest = s.Union(rest, v.open)
		}
		undecided = s.Intersect(undecided, rest)
	}
	return s.Union(allowed, undecided), doubts
}

// joinRules joins the rules of policies. Pods with the same policies share the result, and other pods what rules have in common: one rule after the
// other, the sets of a policy with thousands of rules would grow for each pod anew.
func (c *Cluster) joinRules(policies []*model.Policy, egress bool) *verdict {
	var key strings.Builder
	fmt.Fprint(&key, egress)
	for _, q := range policies {
		fmt.Fprintf(&key, " %p", q)
	}
	if v := c.verdicts[key.String()]; v != nil {
		return v
	}
	v := &verdict{}
	var parts []space.Part
	for _, q := range policies {
		rules := rulesOf(q, egress)
		for i := range rules {
			r := &rules[i]
			m, doubt := c.match(r)
			if doubt != "" {
				v.doubts = append(v.doubts, fmt.Sprintf("%s: %s", q.ID, doubt))
			}
			switch {
			case r.Action == model.ActionLog:
			case r.Action.Allows():
				parts = append(parts, space.Part{Set: m, Verdict: allows})
			case r.Action.Passes():
				parts = append(parts, space.Part{Set: m, Verdict: passes})
			default:
				parts = append(parts, space.Part{Set: m, Verdict: denies})
			}
		}
	}
	d := space.Parts(c.space, parts)
	v.allowed, v.passed, v.open = c.space.Where(d, allows), c.space.Where(d, passes), c.space.Where(d, 0)
	c.verdicts[key.String()] = v
	return v
}
