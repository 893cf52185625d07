package acl

import (
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

const (
	bearable = 512  // rules that negations may make of a clause
	unfolded = 8192 // approximate bound of a program's rules
)

// unfold rewrites steps, the last of which decides everything, so that no clause is a product of many negations. It uses rules alone, not the
// members of sets, so that a new member changes no step.
func unfold(steps []step, wholeBytes bool) []step {
	for i := range steps {
		if steps[i].worst(wholeBytes) > bearable {
			return unfoldFrom(steps, i, wholeBytes)
		}
	}
	return steps
}

func unfoldFrom(steps []step, first int, wholeBytes bool) []step {
	var out []step
	size := 0
	for i := len(steps) - 1; i >= 0; i-- {
		s := &steps[i]
		if i < first || s.worst(wholeBytes) <= bearable {
			out, size = slices.Insert(out, 0, *s), size+s.weight(wholeBytes)
			continue
		}
		for k := len(s.clauses) - 1; k >= 0; k-- {
			out, size = s.unfold(k, out, size, wholeBytes)
		}
	}
	return out
}

// weight estimates the number of rules of a step.
func (s *step) weight(wholeBytes bool) int {
	n := 0
	for i := range s.clauses {
		n += s.clauses[i].Pieces(0, wholeBytes)
	}
	return n
}

// unfold puts clause k of the step in front of the rest, whose estimated number of rules is size.
func (s *step) unfold(k int, rest []step, size int, wholeBytes bool) ([]step, int) {
	role := s.role + "\x00not" + strconv.Itoa(k)
	c := s.clauses[k]
	exceptions, left := c.Exceptions(wholeBytes)
	if size*(len(exceptions)+1) > unfolded { // the limit of this program: another may have the same clause with exceptions
		exceptions, left, role = nil, c, s.role+"\x00whole"+strconv.Itoa(k)
	}
	grown := size*(len(exceptions)+1) + left.Pieces(0, wholeBytes)
	var out []step
	if len(exceptions) > 0 {
		except := step{role: role + "\x00", clauses: make([]match.Clause, len(exceptions))}
		for n, e := range exceptions {
			except.clauses[n] = match.Clause{Verb: match.Allow, Matches: []*match.Match{e}}
		}
		out = except.before(rest)
	}
	if out = append(out, step{role: role, clauses: []match.Clause{left}}); left.Open() { // it decides everything
		return out, grown - size
	}
	return append(out, rest...), grown
}

// worst estimates the largest number of rules that negations make of a clause of the step.
func (s *step) worst(wholeBytes bool) int {
	n := 0
	for i := range s.clauses {
		c := &s.clauses[i]
		if c.Negates() {
			n = max(n, c.Cost(0, wholeBytes))
		}
	}
	return n
}
