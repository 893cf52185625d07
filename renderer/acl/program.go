package acl

import (
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// tier has the policies of a tier that apply to an endpoint in one direction.
type tier struct {
	name     string
	policies []string
	passes   bool // packets that none of them decides about continue to the next tier
}

// spec has the tiers and profiles that decide about an endpoint's packets in one direction.
type spec struct {
	egress   bool
	down     bool
	tiers    []tier
	profiles []string
	forward  bool // no profiles: packets that no tier decides about are allowed
}

// specOf reads an endpoint's tiers.
func specOf(egress bool, tiers []*felix.TierInfo, profiles []string) spec {
	s := spec{egress: egress, profiles: profiles}
	for _, t := range tiers {
		list := t.GetIngressPolicies()
		if egress {
			list = t.GetEgressPolicies()
		}
		enforced := tier{name: t.GetName(), passes: t.GetDefaultAction() == "Pass"}
		for _, name := range list {
			if !(policyID{t.GetName(), name}).staged() {
				enforced.policies = append(enforced.policies, name)
			}
		}
		if len(enforced.policies) > 0 {
			s.tiers = append(s.tiers, enforced)
		}
	}
	return s
}

// key is equal for equivalent specs.
func (s *spec) key() string {
	var b strings.Builder
	b.WriteString([]string{"in", "out"}[directionIndex(s.egress)])
	if s.down {
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
	if s.forward {
		b.WriteString("\x00-")
	}
	return b.String()
}

// program is a spec as one list of steps, shared by the endpoints that have it.
type program struct {
	key   string
	spec  spec
	steps []step
	uses  []use // the steps
	users map[*iface]struct{}
	open  bool // everything is allowed
	free  bool // host endpoints make all its denials
	part  int  // of residues
}

// each calls f for each policy and g for each profile that the spec names.
func (s *spec) each(f func(policyID), g func(profile string)) {
	for _, t := range s.tiers {
		for _, name := range t.policies {
			f(policyID{t.name, name})
		}
	}
	for _, name := range s.profiles {
		g(name)
	}
}

// opens reports whether steps allow everything.
func opens(steps []step) bool {
	for i := range steps {
		if steps[i].clauses[0].Verb == match.Deny {
			return false
		}
	}
	return true
}

// use is a segment in a list; nil: one verdict for every packet.
type use struct {
	seg   *segment
	verb  match.Verb
	cause *dataplane.Cause
}

// flattener turns a spec into one list.
type flattener struct {
	r     *Renderer
	spec  *spec
	tiers [][]step // steps from that tier on; nil: not computed yet
}

// flatten returns the steps of a spec, the last of which decides everything.
func (r *Renderer) flatten(s *spec) []step {
	if s.down {
		return []step{s.everything(match.Deny, dataplane.Cause{Kind: dataplane.CauseDown})}
	}
	f := flattener{r, s, make([][]step, len(s.tiers)+1)}
	return unfold(f.from(0), r.node.ByteMatch6)
}

// everything returns a step that decides every packet.
func (s *spec) everything(v match.Verb, cause dataplane.Cause) step {
	cause.Egress, cause.Denied = s.egress, v == match.Deny
	role := strings.Join([]string{"end", v.String(), strconv.Itoa(int(cause.Kind)), cause.Tier, cause.Policy, cause.Profile}, "\x00")
	return step{role: role, clauses: []match.Clause{{Verb: v, Matches: nil, Cause: &cause}}}
}

func (f *flattener) from(i int) []step {
	if f.tiers[i] == nil {
		if i == len(f.spec.tiers) {
			f.tiers[i] = f.profiles()
		} else {
			f.tiers[i] = f.tier(i)
		}
	}
	return f.tiers[i]
}

func (f *flattener) tier(i int) []step {
	t := &f.spec.tiers[i]
	var out []step
	for _, name := range t.policies {
		p := f.r.policies[policyID{t.name, name}]
		if p == nil {
			return append(out, f.spec.everything(match.Deny, dataplane.Cause{Kind: dataplane.CauseIsolated, Tier: t.name, Policy: name}))
		}
		for _, s := range p.steps[directionIndex(f.spec.egress)] {
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
					out = append(out, next.and(s.pass, s.role))
				}
			}
		}
	}
	if t.passes {
		return append(out, f.from(i+1)...)
	}
	return append(out, f.spec.everything(match.Deny, dataplane.Cause{Kind: dataplane.CauseEndOfTier, Tier: t.name}))
}

func (f *flattener) profiles() []step {
	if f.spec.forward {
		return []step{f.spec.everything(match.Allow, dataplane.Cause{Kind: dataplane.CauseNoMatch})}
	}
	var out []step
	for _, name := range f.spec.profiles {
		p := f.r.profiles[name]
		if p == nil {
			return append(out, f.spec.everything(match.Deny, dataplane.Cause{Kind: dataplane.CauseIsolated, Profile: name}))
		}
		for _, s := range p.steps[directionIndex(f.spec.egress)] {
			if s.pass != nil { // no tier follows: the later steps decide nothing
				s = step{role: s.role, clauses: []match.Clause{{Verb: match.Deny, Matches: []*match.Match{s.pass}, Cause: &dataplane.Cause{Kind: dataplane.CauseNoMatch, Egress: f.spec.egress, Denied: true}}}}
			}
			out = append(out, s)
			if s.last() {
				return out
			}
		}
	}
	return append(out, f.spec.everything(match.Deny, dataplane.Cause{Kind: dataplane.CauseNoMatch}))
}
