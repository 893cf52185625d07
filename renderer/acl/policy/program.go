package policy

import (
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// tierPolicies has the policies of a tier that apply to an endpoint in one direction.
type tierPolicies struct {
	name     string
	policies []string
	passes   bool // packets that none of them decides about continue to the next tier
}

// Spec has the tiers and profiles that decide about an endpoint's packets in one direction.
type Spec struct {
	Egress   bool
	Down     bool
	tiers    []tierPolicies
	profiles []string
	Forward  bool // no profiles: packets that no tier decides about are allowed
}

// SpecOf reads an endpoint's tiers.
func SpecOf(egress bool, tiers []*felix.TierInfo, profiles []string) Spec {
	s := Spec{Egress: egress, profiles: profiles}
	for _, t := range tiers {
		list := t.GetIngressPolicies()
		if egress {
			list = t.GetEgressPolicies()
		}
		enforced := tierPolicies{name: t.GetName(), passes: t.GetDefaultAction() == "Pass"}
		for _, name := range list {
			if !(ID{t.GetName(), name}).staged() {
				enforced.policies = append(enforced.policies, name)
			}
		}
		if len(enforced.policies) > 0 {
			s.tiers = append(s.tiers, enforced)
		}
	}
	return s
}

// Key is equal for equivalent specs.
func (s *Spec) Key() string {
	var b strings.Builder
	b.WriteString([]string{"in", "out"}[match.InOut(s.Egress)])
	if s.Down {
		return b.String() + " down"
	}
	for _, t := range s.tiers {
		b.WriteString("\x00t" + t.name)
		if t.passes {
			b.WriteString("\x00+")
		}
		for _, p := range t.policies {
			b.WriteString("\x00p" + p)
		}
	}
	for _, p := range s.profiles {
		b.WriteString("\x00f" + p)
	}
	if s.Forward {
		b.WriteString("\x00-")
	}
	return b.String()
}

// Each calls f for each policy and g for each profile that the spec names.
func (s *Spec) Each(f func(ID), g func(profile string)) {
	for _, t := range s.tiers {
		for _, name := range t.policies {
			f(ID{t.name, name})
		}
	}
	for _, name := range s.profiles {
		g(name)
	}
}

// flattener turns a spec into one list.
type flattener struct {
	book  *Book
	spec  *Spec
	tiers []Steps // steps from that tier on; nil: not computed yet
}

// Flatten returns the steps of a spec, the last of which decides everything.
func (b *Book) Flatten(s *Spec, wholeBytes bool) Steps {
	if s.Down {
		return Steps{s.everything(match.Deny, dataplane.Cause{Kind: dataplane.CauseDown})}
	}
	f := flattener{b, s, make([]Steps, len(s.tiers)+1)}
	return Unfold(f.from(0), wholeBytes)
}

// everything returns a step that decides every packet.
func (s *Spec) everything(v match.Verb, cause dataplane.Cause) Step {
	cause.Egress, cause.Denied = s.Egress, v == match.Deny
	role := strings.Join([]string{"end", v.String(), strconv.Itoa(int(cause.Kind)), cause.Tier, cause.Policy, cause.Profile}, "\x00")
	return Step{Role: role, Clauses: []match.Clause{{Verb: v, Matches: nil, Cause: &cause}}}
}

func (f *flattener) from(i int) Steps {
	if f.tiers[i] == nil {
		if i == len(f.spec.tiers) {
			f.tiers[i] = f.profiles()
		} else {
			f.tiers[i] = f.tier(i)
		}
	}
	return f.tiers[i]
}

func (f *flattener) tier(i int) Steps {
	t := &f.spec.tiers[i]
	var out Steps
	for _, name := range t.policies {
		p := f.book.policies[ID{t.name, name}]
		if p == nil {
			return append(out, f.spec.everything(match.Deny, dataplane.Cause{Kind: dataplane.CauseIsolated, Tier: t.name, Policy: name}))
		}
		for _, s := range p.steps[match.InOut(f.spec.Egress)] {
			switch {
			case s.pass == nil:
				out = append(out, s)
				if s.last() {
					return out
				}
			case s.pass.Open():
				return append(out, f.from(i+1)...)
			default:
				for _, next := range f.from(i + 1) {
					out = append(out, next.And(s.pass, s.Role))
				}
			}
		}
	}
	if t.passes {
		return append(out, f.from(i+1)...)
	}
	return append(out, f.spec.everything(match.Deny, dataplane.Cause{Kind: dataplane.CauseEndOfTier, Tier: t.name}))
}

func (f *flattener) profiles() Steps {
	if f.spec.Forward {
		return Steps{f.spec.everything(match.Allow, dataplane.Cause{Kind: dataplane.CauseNoMatch})}
	}
	var out Steps
	for _, name := range f.spec.profiles {
		p := f.book.profiles[name]
		if p == nil {
			return append(out, f.spec.everything(match.Deny, dataplane.Cause{Kind: dataplane.CauseIsolated, Profile: name}))
		}
		for _, s := range p.steps[match.InOut(f.spec.Egress)] {
			if s.pass != nil { // no tier follows: the later steps decide nothing
				s = Step{Role: s.Role, Clauses: []match.Clause{{Verb: match.Deny, Matches: []*match.Match{s.pass}, Cause: &dataplane.Cause{Kind: dataplane.CauseNoMatch, Egress: f.spec.Egress, Denied: true}}}}
			}
			out = append(out, s)
			if s.last() {
				return out
			}
		}
	}
	return append(out, f.spec.everything(match.Deny, dataplane.Cause{Kind: dataplane.CauseNoMatch}))
}
