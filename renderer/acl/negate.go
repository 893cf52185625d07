package acl

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/classifier"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// A negation has no counterpart in an ACL: it becomes the remaining values. Several negations at once become every remaining protocol
// times every remaining range. Beyond a bound an exception replaces a negation, because the first rule that matches decides:
//
//	not P ─▶ decision, rest    becomes    P ─▶ rest,  all ─▶ decision,  rest
//
// which repeats the following rules, for the packets that this rule does not decide about.

// dimension is a part of a match that can be negated.
type dimension uint8

const (
	ofProtocol dimension = iota
	ofSource
	ofDestination
	dimensions
)

// cuts are the matches without some of their negations, and the exceptions in place of those. They are cached, so that they are the same
// pointers each time.
type cuts struct {
	without [1 << dimensions]*match // by the omitted dimensions
	except  [dimensions][]*match
	// reversed is the match with source and destination exchanged.
	reversed *match
}

const (
	bearable  = 512  // rules that negations may make of a clause
	aimed     = 64   // rules per clause if exceptions replace negations: the rest may be written several times
	unfolded  = 8192 // approximate bound of a program's rules
	setPieces = 256  // assumed prefixes that a set leaves
	allProtos = 255
	perBlock  = 8 // number of rules that a table of VPP's classifier counts as; tables are far scarcer: see classifier
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
		n += s.clauses[i].pieces(0, wholeBytes)
	}
	return n
}

// unfold puts clause k of the step in front of the rest, whose estimated number of rules is size.
func (s *step) unfold(k int, rest []step, size int, wholeBytes bool) ([]step, int) {
	role := s.role + "\x00not" + strconv.Itoa(k)
	c := s.clauses[k]
	exceptions, left := c.exceptions(wholeBytes)
	if size*(len(exceptions)+1) > unfolded { // the limit of this program: another may have the same clause with exceptions
		exceptions, left, role = nil, c, s.role+"\x00whole"+strconv.Itoa(k)
	}
	grown := size*(len(exceptions)+1) + left.pieces(0, wholeBytes)
	var out []step
	if len(exceptions) > 0 {
		except := step{role: role + "\x00", clauses: make([]clause, len(exceptions))}
		for n, e := range exceptions {
			except.clauses[n] = clause{verb: allow, matches: []*match{e}}
		}
		out = except.before(rest)
	}
	if out = append(out, step{role: role, clauses: []clause{left}}); left.open() { // it decides everything
		return out, grown - size
	}
	return append(out, rest...), grown
}

// worst estimates the largest number of rules that negations make of a clause of the step.
func (s *step) worst(wholeBytes bool) int {
	n := 0
	for i := range s.clauses {
		c := &s.clauses[i]
		if c.negates() {
			n = max(n, c.cost(0, wholeBytes))
		}
	}
	return n
}

// negates is a quick check for negations.
func (c *clause) negates() bool {
	return slices.ContainsFunc(c.matches, func(m *match) bool {
		return m.notProto > 0 || m.notICMP != nil || m.src.notNets != nil || m.src.notSets != nil || m.dst.notNets != nil || m.dst.notSets != nil
	})
}

// exceptions returns the clause without as many negations as necessary, and the exceptions in place of them.
func (c *clause) exceptions(wholeBytes bool) (list []*match, left clause) {
	mask := 0
	for c.cost(mask, wholeBytes) > aimed {
		best := slices.MaxFunc([]dimension{ofProtocol, ofSource, ofDestination}, func(a, b dimension) int {
			return cmp.Compare(c.gain(mask, a, wholeBytes), c.gain(mask, b, wholeBytes))
		})
		if c.gain(mask, best, wholeBytes) <= 1 {
			break
		}
		mask |= 1 << best
	}
	left = *c
	left.matches = make([]*match, len(c.matches))
	for i, m := range c.matches {
		left.matches[i] = m.cut(mask)
		for d := range dimensions {
			if mask>>d&1 != 0 {
				list = append(list, m.exceptions(d)...)
			}
		}
	}
	return list, left
}

// gain is the factor by which the clause shrinks without the negations of one more dimension.
func (c *clause) gain(mask int, d dimension, wholeBytes bool) int {
	if mask>>d&1 != 0 {
		return 0
	}
	return c.factor(mask, d, wholeBytes) / max(1, c.factor(mask|1<<d, d, wholeBytes))
}

// cost returns pieces; for ports of SCTP in units of VPP's classifier, which may need a table for each prefix and block of ports.
func (c *clause) cost(mask int, wholeBytes bool) int {
	n := c.pieces(mask, wholeBytes)
	if !c.asksPorts() {
		return n
	}
	blocks := 1
	for _, m := range c.matches {
		blocks = max(blocks, m.src.blocks()*m.dst.blocks())
	}
	return n * blocks * perBlock
}

// blocks returns the number of port blocks of a side.
func (s *side) blocks() int {
	left := s.ports
	if left == nil {
		left = []span{allPorts}
	}
	for _, hole := range s.notPorts {
		var rest []span
		for _, p := range left {
			rest = append(rest, p.minus(hole)...)
		}
		left = rest
	}
	n := 0
	for _, p := range left {
		n += classifier.Range{First: p.lo, Last: p.hi}.Blocks()
	}
	return max(1, n)
}

// pieces estimates the number of rules of a clause without the negations of some dimensions.
func (c *clause) pieces(mask int, wholeBytes bool) int {
	return c.factor(mask, ofProtocol, wholeBytes) * c.factor(mask, ofSource, wholeBytes) * c.factor(mask, ofDestination, wholeBytes)
}

func (c *clause) factor(mask int, d dimension, wholeBytes bool) int {
	out := mask>>d&1 != 0
	if d == ofProtocol {
		negated := false
		for _, m := range c.matches {
			if m.proto > 0 || m.icmp != nil {
				return 1
			}
			negated = negated || m.notProto > 0 || m.notICMP != nil
		}
		if negated && !out {
			return allProtos
		}
		return 1
	}
	most := 1
	for _, f := range families {
		n := 0
		for _, m := range c.matches {
			s := m.sideOf(d)
			if m.version == felix.IPVersion_IPV4 && f != v4 || m.version == felix.IPVersion_IPV6 && f != v6 || !s.reaches(f) {
				n = 0
				break
			}
			written := 0
			for _, p := range ofFamily(s.nets, f) {
				if written++; wholeBytes && f == v6 {
					written += budget.WholeBytes(p.Bits()) - 1
				}
			}
			n = max(n, written)
			if !out {
				n += s.leaves(f, wholeBytes)
			}
		}
		most = max(most, n)
	}
	return most
}

func (m *match) sideOf(d dimension) *side {
	if d == ofSource {
		return &m.src
	}
	return &m.dst
}

// leaves estimates the number of prefixes that the negations of a side leave.
func (s *side) leaves(f family, wholeBytes bool) int {
	n := setPieces * len(s.notSets)
	for _, hole := range ofFamily(s.notNets, f) {
		from := 0
		if s.nets != nil {
			at := slices.IndexFunc(s.nets, func(p netip.Prefix) bool { return p.Bits() <= hole.Bits() && p.Contains(hole.Addr()) })
			if at < 0 {
				continue
			}
			from = s.nets[at].Bits()
		}
		for l := from + 1; l <= hole.Bits(); l++ {
			if wholeBytes && f == v6 {
				n += budget.WholeBytes(l)
			} else {
				n++
			}
		}
	}
	return n
}

// cut returns the match without the negations of some dimensions.
func (m *match) cut(mask int) *match {
	if mask == 0 {
		return m
	}
	if m.cuts == nil {
		m.cuts = &cuts{}
	}
	if w := m.cuts.without[mask]; w != nil {
		return w
	}
	w := *m
	w.cuts = nil
	if mask>>ofProtocol&1 != 0 {
		w.notProto, w.notICMP = -1, nil
	}
	if mask>>ofSource&1 != 0 {
		w.src.notNets, w.src.notSets = nil, nil
	}
	if mask>>ofDestination&1 != 0 {
		w.dst.notNets, w.dst.notSets = nil, nil
	}
	m.cuts.without[mask] = &w
	return &w
}

// exceptions returns the matches of the negated values of a dimension.
func (m *match) exceptions(d dimension) []*match {
	if m.cuts == nil {
		m.cuts = &cuts{}
	}
	if m.cuts.except[d] == nil {
		m.cuts.except[d] = m.newExceptions(d)
	}
	return m.cuts.except[d]
}

func (m *match) newExceptions(d dimension) []*match {
	list := []*match{}
	add := func(change func(*match)) {
		e := &match{proto: -1, notProto: -1}
		change(e)
		list = append(list, e)
	}
	if d == ofProtocol {
		if m.notProto > 0 {
			add(func(e *match) { e.proto = m.notProto })
		}
		if m.notICMP != nil {
			add(func(e *match) { e.icmp = m.notICMP })
		}
		return list
	}
	s := m.sideOf(d)
	if s.notNets != nil {
		add(func(e *match) { e.sideOf(d).nets = s.notNets })
	}
	for _, id := range s.notSets {
		add(func(e *match) { e.sideOf(d).sets = []string{id} })
	}
	return list
}
