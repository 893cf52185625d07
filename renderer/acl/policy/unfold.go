package policy

import (
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

const (
	bearable     = 512  // rules that negations may make of a clause
	MostUnfolded = 8192 // approximate bound of a program's rules
)

// Unfold rewrites steps, the last of which decides everything, so that no clause is a product of many negations. It uses rules alone, not the
// members of sets, so that a new member changes no step.
func Unfold(steps Steps, wholeBytes bool) Steps {
	for i := range steps {
		if steps[i].worst(wholeBytes) > bearable {
			return unfoldFrom(steps, i, wholeBytes)
		}
	}
	return steps
}

func unfoldFrom(steps Steps, first int, wholeBytes bool) Steps {
	var out Steps
	size := 0
	for i := len(steps) - 1; i >= 0; i-- {
		s := &steps[i]
		if i < first || s.worst(wholeBytes) <= bearable {
			out, size = slices.Insert(out, 0, *s), size+s.weight(wholeBytes)
			continue
		}
		for k := len(s.Clauses) - 1; k >= 0; k-- {
			out, size = s.unfold(k, out, size, wholeBytes)
		}
	}
	return out
}

// weight estimates the number of rules of a step.
func (s *Step) weight(wholeBytes bool) int {
	n := 0
	for i := range s.Clauses {
		n += s.Clauses[i].Pieces(0, wholeBytes)
	}
	return n
}

// unfold puts clause k of the step in front of the rest, whose estimated number of rules is size.
func (s *Step) unfold(k int, rest Steps, size int, wholeBytes bool) (Steps, int) {
	role := s.Role + "\x00not" + strconv.Itoa(k)
	c := s.Clauses[k]
	exceptions, left := c.Exceptions(wholeBytes)
	if size*(len(exceptions)+1) > MostUnfolded { // the limit of this program: another may have the same clause with exceptions
		exceptions, left, role = nil, c, s.Role+"\x00whole"+strconv.Itoa(k)
	}
	grown := size*(len(exceptions)+1) + left.Pieces(0, wholeBytes)
	var out Steps
	if len(exceptions) > 0 {
		except := Step{Role: role + "\x00", Clauses: make([]match.Clause, len(exceptions))}
		for n, e := range exceptions {
			except.Clauses[n] = match.Clause{Verb: match.Allow, Matches: []*match.Match{e}}
		}
		out = except.Before(rest)
	}
	if out = append(out, Step{Role: role, Clauses: []match.Clause{left}}); left.Open() { // it decides everything
		return out, grown - size
	}
	return append(out, rest...), grown
}

// worst estimates the largest number of rules that negations make of a clause of the step.
func (s *Step) worst(wholeBytes bool) int {
	n := 0
	for i := range s.Clauses {
		c := &s.Clauses[i]
		if c.Negates() {
			n = max(n, c.Cost(0, wholeBytes))
		}
	}
	return n
}
