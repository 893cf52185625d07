package acl

import (
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// policyID names a policy.
type policyID struct{ tier, name string }

// staged reports whether a policy is a trial: it decides nothing.
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
	clauses []match.Clause
	pass    *match.Match // not nil: no clauses
	answers bool         // it is egress with source and destination exchanged
}

// last reports whether the step decides every packet that reaches it.
func (s *step) last() bool { return len(s.clauses) > 0 && s.clauses[len(s.clauses)-1].Open() }

// lone reports whether the step is one clause that decides every packet.
func (s *step) lone() bool { return len(s.clauses) == 1 && s.clauses[0].Open() }

// and returns the step for packets that match m only, which a rule of role passed on.
func (s step) and(m *match.Match, role string) step {
	out := step{role: role + "\x00" + s.role, clauses: make([]match.Clause, len(s.clauses))}
	for i, c := range s.clauses {
		matches := make([]*match.Match, 0, len(c.Matches)+1)
		out.clauses[i] = match.Clause{Verb: c.Verb, Matches: append(append(matches, c.Matches...), m), Cause: c.Cause}
	}
	return out
}

// same reports whether two steps are equal.
func (s step) same(o step) bool {
	return s.role == o.role && (s.pass == nil) == (o.pass == nil) && (s.pass == nil || s.pass.Same(o.pass)) &&
		slices.EqualFunc(s.clauses, o.clauses, func(a, b match.Clause) bool {
			return a.Verb == b.Verb && *a.Cause == *b.Cause && slices.EqualFunc(a.Matches, b.Matches, (*match.Match).Same)
		})
}

// identical reports whether two steps consist of the same pointers.
func (s step) identical(o step) bool {
	return s.role == o.role && slices.EqualFunc(s.clauses, o.clauses, match.Clause.Equal)
}

// rules are the rules of a policy or profile, by direction: [0] in, [1] out.
type rules struct {
	steps    [2][]step
	served   *ports // the ports that ingress rules name
	problems []string
}

// directionIndex is the place of a direction in arrays: [0] in, [1] out.
func directionIndex(egress bool) int {
	if egress {
		return 1
	}
	return 0
}

// reader reads the rules of policies and profiles. It reuses its memory.
type reader struct {
	match.Parser
	old []piece // pieces of the same list from the last read, in order
	follower
}

// piece is the result of reading one rule.
type piece struct {
	verb   match.Verb
	m      *match.Match
	clause *match.Clause // nil: the rule passes
}

// recall prepares for a list whose last read gave these steps.
func (x *reader) recall(steps []step) {
	x.old, x.follower = x.old[:0], follower{}
	for i := range steps {
		if s := &steps[i]; s.pass != nil {
			x.old = append(x.old, piece{match.Pass, s.pass, nil})
		} else {
			for k := range s.clauses {
				x.old = append(x.old, piece{s.clauses[k].Verb, s.clauses[k].Matches[0], &s.clauses[k]})
			}
		}
	}
}

// known returns the earlier piece of the rule that was just parsed; nil if it is new.
func (x *reader) known(v match.Verb) *piece {
	if i, ok := x.find(len(x.old), func(i int) bool { return x.old[i].verb == v && x.old[i].m.Same(&x.Last) }); ok {
		return &x.old[i]
	}
	return nil
}

// follower finds the elements of a list in an older list with mostly the same elements in the same order. Most are at the
// expected index; after elements that are missing, it searches before and behind that index.
type follower struct {
	at     int // first index that may match again
	missed int // number of consecutive misses
}

const mostMissed = 8

// find returns the index of the next element in an older list of n.
func (f *follower) find(n int, same func(i int) bool) (place int, ok bool) {
	for i := f.at; i < min(f.at+f.missed+2, n); i++ {
		if same(i) {
			f.at, f.missed = i+1, 0
			return i, true
		}
	}
	if f.missed == mostMissed {
		f.at++
	} else {
		f.missed++
	}
	return 0, false
}

// compile reads the rules of a policy or profile. It omits rules after one that decides everything. Unchanged rules give the same
// pointers: then nothing that is made of them changes.
func (x *reader) compile(role string, in, out []*felix.Rule, cause dataplane.Cause, before *rules) *rules {
	r := &rules{}
	for i, list := range [2][]*felix.Rule{in, out} {
		word := "inbound"
		if i == 1 {
			word = "outbound"
		}
		if x.recall(nil); before != nil {
			x.recall(before.steps[i])
		}
		r.steps[i] = r.read(x, role+"\x00"+word, word, list, cause, i == 1)
		if before != nil && slices.EqualFunc(r.steps[i], before.steps[i], step.same) {
			r.steps[i] = before.steps[i]
		}
	}
	tcp, udp := explicit(r.steps[0])
	r.served = newPorts(high(tcp), udp)
	return r
}

func (r *rules) read(x *reader, role, word string, list []*felix.Rule, cause dataplane.Cause, egress bool) []step {
	var out []step
	all, start := make([]match.Clause, 0, len(list)), 0 // the clauses of all steps, and the first index of the last step's
	runs := 0
	for i, raw := range list {
		verb, problems := x.Parse(raw)
		for _, p := range problems {
			r.problems = append(r.problems, word+" rule "+strconv.Itoa(i)+": "+p)
		}
		if verb == match.Skip {
			continue
		}
		was := x.known(verb)
		if verb == match.Pass {
			out = append(out, step{role: role + "\x00pass" + strconv.Itoa(i), pass: x.match(was)})
			continue
		}
		c := cause
		c.Rule, c.Egress, c.Denied = i, egress, verb == match.Deny
		if n := len(out); n == 0 || out[n-1].pass != nil || out[n-1].clauses[0].Verb != verb {
			out = append(out, step{role: role + "\x00" + strconv.Itoa(runs) + verb.String()})
			runs++
			start = len(all)
		}
		all = append(all, x.clause(verb, was, c))
		run := &out[len(out)-1]
		run.clauses = all[start:len(all):len(all)]
		if run.last() {
			break
		}
	}
	return out
}

// match returns the match of the rule just parsed; old is its earlier piece.
func (x *reader) match(was *piece) *match.Match {
	if was != nil {
		return was.m
	}
	return x.Keep()
}

// clause returns the rule just parsed; old is its earlier piece.
func (x *reader) clause(v match.Verb, was *piece, c dataplane.Cause) match.Clause {
	if was != nil && *was.clause.Cause == c {
		return *was.clause
	}
	kept := c // only this copy is on the heap
	if was != nil {
		return match.Clause{Verb: v, Matches: was.clause.Matches, Cause: &kept}
	}
	return match.Clause{Verb: v, Matches: []*match.Match{x.Keep()}, Cause: &kept}
}
