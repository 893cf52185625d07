package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/index"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// ID names a policy.
type ID struct{ Tier, Name string }

// staged reports whether a policy is a trial: it decides nothing.
func (id ID) staged() bool {
	name := id.Name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	return strings.HasPrefix(name, "staged:")
}

// rules are the rules of a policy or profile, by direction: [0] in, [1] out.
type rules struct {
	steps    [2][]Step
	served   *law.Ports // the ports that ingress rules name
	problems []string
}

// reader reads the rules of policies and profiles. It reuses its memory.
type reader struct {
	match.Parser
	old []piece // pieces of the same list from the last read, in order
	index.Follower
}

// piece is the result of reading one rule.
type piece struct {
	verb   match.Verb
	m      *match.Match
	clause *match.Clause // nil: the rule passes
}

// recall prepares for a list whose last read gave these steps.
func (x *reader) recall(steps []Step) {
	x.old, x.Follower = x.old[:0], index.Follower{}
	for i := range steps {
		if s := &steps[i]; s.pass != nil {
			x.old = append(x.old, piece{match.Pass, s.pass, nil})
		} else {
			for k := range s.Clauses {
				x.old = append(x.old, piece{s.Clauses[k].Verb, s.Clauses[k].Matches[0], &s.Clauses[k]})
			}
		}
	}
}

// known returns the earlier piece of the rule that was just parsed; nil if it is new.
func (x *reader) known(v match.Verb) *piece {
	if i, ok := x.Find(len(x.old), func(i int) bool { return x.old[i].verb == v && x.old[i].m.Same(&x.Last) }); ok {
		return &x.old[i]
	}
	return nil
}

// readRules reads the rules of a policy or profile. It omits rules after one that decides everything. Unchanged rules give the same
// pointers: then nothing that is made of them changes.
func (x *reader) readRules(role string, in, out []*felix.Rule, cause dataplane.Cause, before *rules) *rules {
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
		if before != nil && slices.EqualFunc(r.steps[i], before.steps[i], Step.Same) {
			r.steps[i] = before.steps[i]
		}
	}
	tcp, udp := explicit(r.steps[0])
	r.served = law.NewPorts(tcp, udp)
	return r
}

func (r *rules) read(x *reader, role, word string, list []*felix.Rule, cause dataplane.Cause, egress bool) []Step {
	var out []Step
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
			out = append(out, Step{Role: role + "\x00pass" + strconv.Itoa(i), pass: x.match(was)})
			continue
		}
		c := cause
		c.Rule, c.Egress, c.Denied = i, egress, verb == match.Deny
		if n := len(out); n == 0 || out[n-1].pass != nil || out[n-1].Clauses[0].Verb != verb {
			out = append(out, Step{Role: role + "\x00" + strconv.Itoa(runs) + verb.String()})
			runs++
			start = len(all)
		}
		all = append(all, x.clause(verb, was, c))
		run := &out[len(out)-1]
		run.Clauses = all[start:len(all):len(all)]
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

// MostPorts bounds a policy's port range that counts as served: a broader range says nothing about the pods.
const MostPorts = 1024

// explicit returns the ports that ingress rules name. Each pod that the policy applies to counts as serving them.
func explicit(steps []Step) (tcp, udp []match.Span) {
	for i := range steps {
		for k := range steps[i].Clauses {
			c := &steps[i].Clauses[k]
			if c.Verb != match.Allow {
				continue
			}
			m := c.Matches[0]
			for _, s := range m.Dst.Ports {
				if s.Hi-s.Lo >= MostPorts {
					continue
				}
				if m.Proto == match.TCP || m.Proto < 0 {
					tcp = append(tcp, s)
				}
				if m.Proto == match.UDP || m.Proto < 0 {
					udp = append(udp, s)
				}
			}
		}
	}
	return tcp, udp
}

// String is "<tier>/<name>".
func (id ID) String() string { return fmt.Sprintf("%s/%s", id.Tier, id.Name) }
