package policy

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

// Step is a run of clauses with one action, or a rule that passes.
type Step struct {
	Role    string
	Clauses []match.Clause
	pass    *match.Match // not nil: no clauses
	Answers bool         // it is egress with source and destination exchanged
}

// Steps are a list of steps: the first match decides.
type Steps []Step

// last reports whether the step decides every packet that reaches it.
func (s *Step) last() bool { return len(s.Clauses) > 0 && s.Clauses[len(s.Clauses)-1].Open() }

// Lone reports whether the step is one clause that decides every packet.
func (s *Step) Lone() bool { return len(s.Clauses) == 1 && s.Clauses[0].Open() }

// And returns the step for packets that match m only, which a rule of role passed on.
func (s Step) And(m *match.Match, role string) Step {
	out := Step{Role: role + "\x00" + s.Role, Clauses: make([]match.Clause, len(s.Clauses))}
	for i, c := range s.Clauses {
		matches := make([]*match.Match, 0, len(c.Matches)+1)
		out.Clauses[i] = match.Clause{Verb: c.Verb, Matches: append(append(matches, c.Matches...), m), Cause: c.Cause}
	}
	return out
}

// Same reports whether two steps are equal.
func (s Step) Same(o Step) bool {
	return s.Role == o.Role && (s.pass == nil) == (o.pass == nil) && (s.pass == nil || s.pass.Same(o.pass)) &&
		slices.EqualFunc(s.Clauses, o.Clauses, func(a, b match.Clause) bool {
			return a.Verb == b.Verb && *a.Cause == *b.Cause && slices.EqualFunc(a.Matches, b.Matches, (*match.Match).Same)
		})
}

// Identical reports whether two steps consist of the same pointers.
func (s Step) Identical(o Step) bool {
	return s.Role == o.Role && slices.EqualFunc(s.Clauses, o.Clauses, match.Clause.Equal)
}

// Signed returns steps with their host endpoint as cause.
func Signed(list Steps, endpoint string) Steps {
	out := make(Steps, len(list))
	for i, s := range list {
		out[i] = Step{Role: "exit\x00" + endpoint + "\x00" + s.Role, Clauses: make([]match.Clause, len(s.Clauses))}
		for k, c := range s.Clauses {
			cause := *c.Cause
			cause.Endpoint, cause.Host, cause.Egress = endpoint, true, true
			out[i].Clauses[k] = match.Clause{Verb: c.Verb, Matches: c.Matches, Cause: &cause}
		}
	}
	return out
}

// Before returns the step if it denies; if it allows, the following steps decide about its packets.
func (s Step) Before(own Steps) Steps {
	if s.Clauses[0].Verb == match.Deny {
		return Steps{s}
	}
	out := make(Steps, len(own))
	for i, o := range own {
		out[i].Role = s.Role + "\x00" + o.Role
		for _, c := range o.Clauses {
			for _, d := range s.Clauses {
				out[i].Clauses = append(out[i].Clauses, match.Clause{Verb: c.Verb, Matches: slices.Concat(c.Matches, d.Matches), Cause: c.Cause})
			}
		}
	}
	return out
}

// Opens reports whether steps allow everything.
func (s Steps) Opens() bool {
	for i := range s {
		if s[i].Clauses[0].Verb == match.Deny {
			return false
		}
	}
	return true
}

// Each yields the clauses of a program, in order.
func (s Steps) Each(yield func(*match.Clause) bool) {
	for i := range s {
		for k := range s[i].Clauses {
			if !yield(&s[i].Clauses[k]) {
				return
			}
		}
	}
}

// IgnoresSources reports whether a program evaluates all sources' addresses alike.
func (s Steps) IgnoresSources() bool {
	for c := range s.Each {
		for _, m := range c.Matches {
			if !m.Src.AnyHost() {
				return false
			}
		}
	}
	return true
}

// IgnoresDestinations reports whether a program evaluates all destinations' addresses alike.
func (s Steps) IgnoresDestinations() bool {
	for c := range s.Each {
		for _, m := range c.Matches {
			if !m.Dst.AnyHost() {
				return false
			}
		}
	}
	return true
}

// AsksHosts reports whether the verdict of a program about IPv4 packets of SCTP or UDP-Lite may depend on destinations' addresses.
func (s Steps) AsksHosts() bool {
	for c := range s.Each {
		if c.Untranslated() && slices.ContainsFunc(c.Matches, func(m *match.Match) bool { return !m.Dst.AnyHost() }) {
			return true
		}
	}
	return false
}

// NamesSet reports whether the program depends on a set.
func (s Steps) NamesSet(id string) bool {
	found := false
	for i := range s {
		for _, c := range s[i].Clauses {
			for _, m := range c.Matches {
				m.EachSet(func(name string) { found = found || name == id })
			}
		}
	}
	return found
}
