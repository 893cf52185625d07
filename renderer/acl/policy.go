package acl

import (
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/enforce"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// policyID names a policy.
type policyID struct{ tier, name string }

// staged tells whether a policy is only being tried out: it decides nothing.
func (id policyID) staged() bool {
	name := id.name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	return strings.HasPrefix(name, "staged:")
}

// step is a run of clauses with one action, or a rule that passes.
type step struct {
	role    string
	clauses []clause
	pass    *match // not nil: no clauses
}

// last tells whether the step decides every packet that comes to it.
func (s *step) last() bool { return len(s.clauses) > 0 && s.clauses[len(s.clauses)-1].open() }

// lone tells whether the step is one clause that decides every packet.
func (s *step) lone() bool { return len(s.clauses) == 1 && s.clauses[0].open() }

// and is the step for packets that match m only, which rule of role passed on.
func (s step) and(m *match, role string) step {
	out := step{role: role + "\x00" + s.role, clauses: make([]clause, len(s.clauses))}
	for i, c := range s.clauses {
		matches := make([]*match, 0, len(c.matches)+1)
		out.clauses[i] = clause{c.verb, append(append(matches, c.matches...), m), c.cause}
	}
	return out
}

// same tells whether two steps say the same.
func (s step) same(o step) bool {
	return s.role == o.role && (s.pass == nil) == (o.pass == nil) && (s.pass == nil || s.pass.same(o.pass)) &&
		slices.EqualFunc(s.clauses, o.clauses, func(a, b clause) bool {
			return a.verb == b.verb && *a.cause == *b.cause && slices.EqualFunc(a.matches, b.matches, (*match).same)
		})
}

// identical tells whether two steps are of the same pieces.
func (s step) identical(o step) bool {
	return s.role == o.role && slices.EqualFunc(s.clauses, o.clauses, clause.equal)
}

// rules are those of a policy or profile, by direction: [0] in, [1] out.
type rules struct {
	steps    [2][]step
	problems []string
}

func index(egress bool) int {
	if egress {
		return 1
	}
	return 0
}

// compileRules reads the rules of a policy or profile. Rules after one that decides everything are left out. What is as it was
// before is the same pieces: then nothing that is made of them changes.
func compileRules(role string, in, out []*felix.Rule, cause enforce.Cause, before *rules) *rules {
	r := &rules{}
	for i, list := range [2][]*felix.Rule{in, out} {
		word := "inbound"
		if i == 1 {
			word = "outbound"
		}
		r.steps[i] = r.read(role+"\x00"+word, word, list, cause, i == 1)
		if before != nil && slices.EqualFunc(r.steps[i], before.steps[i], step.same) {
			r.steps[i] = before.steps[i]
		}
	}
	return r
}

func (r *rules) read(role, word string, list []*felix.Rule, cause enforce.Cause, egress bool) []step {
	var out []step
	runs := 0
	for i, raw := range list {
		rule, problems := parse(raw)
		for _, p := range problems {
			r.problems = append(r.problems, word+" rule "+strconv.Itoa(i)+": "+p)
		}
		switch {
		case rule.verb == skip:
			continue
		case rule.verb == pass:
			out = append(out, step{role: role + "\x00pass" + strconv.Itoa(i), pass: rule.m})
			continue
		}
		c := cause
		c.Rule, c.Egress, c.Denied = i, egress, rule.verb == deny
		if n := len(out); n == 0 || out[n-1].pass != nil || out[n-1].clauses[0].verb != rule.verb {
			out = append(out, step{role: role + "\x00" + strconv.Itoa(runs) + rule.verb.String()})
			runs++
		}
		run := &out[len(out)-1]
		run.clauses = append(run.clauses, clause{rule.verb, []*match{rule.m}, &c})
		if run.last() {
			break
		}
	}
	return out
}
