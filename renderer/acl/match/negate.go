package match

import (
	"cmp"
	"net/netip"
	"slices"

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
	without [1 << dimensions]*Match // by the omitted dimensions
	except  [dimensions][]*Match
	// reversed is the match with source and destination exchanged.
	reversed *Match
}

const (
	aimed     = 64  // rules per clause if exceptions replace negations: the rest may be written several times
	setPieces = 256 // assumed prefixes that a set leaves
	allProtos = 255
	perBlock  = 8 // number of rules that a table of VPP's classifier counts as; tables are far scarcer: see classifier
)

// Negates is a quick check for negations.
func (c *Clause) Negates() bool {
	return slices.ContainsFunc(c.Matches, func(m *Match) bool {
		return m.NotProto > 0 || m.NotICMP != nil || m.Src.NotNets != nil || m.Src.NotSets != nil || m.Dst.NotNets != nil || m.Dst.NotSets != nil
	})
}

// Exceptions returns the clause without as many negations as necessary, and the exceptions in place of them.
func (c *Clause) Exceptions(wholeBytes bool) (list []*Match, left Clause) {
	mask := 0
	for c.Cost(mask, wholeBytes) > aimed {
		best := slices.MaxFunc([]dimension{ofProtocol, ofSource, ofDestination}, func(a, b dimension) int {
			return cmp.Compare(c.gain(mask, a, wholeBytes), c.gain(mask, b, wholeBytes))
		})
		if c.gain(mask, best, wholeBytes) <= 1 {
			break
		}
		mask |= 1 << best
	}
	left = *c
	left.Matches = make([]*Match, len(c.Matches))
	for i, m := range c.Matches {
		left.Matches[i] = m.cut(mask)
		for d := range dimensions {
			if mask>>d&1 != 0 {
				list = append(list, m.exceptions(d)...)
			}
		}
	}
	return list, left
}

// gain is the factor by which the clause shrinks without the negations of one more dimension.
func (c *Clause) gain(mask int, d dimension, wholeBytes bool) int {
	if mask>>d&1 != 0 {
		return 0
	}
	return c.factor(mask, d, wholeBytes) / max(1, c.factor(mask|1<<d, d, wholeBytes))
}

// Cost returns pieces; for ports of SCTP in units of VPP's classifier, which may need a table for each prefix and block of ports.
func (c *Clause) Cost(mask int, wholeBytes bool) int {
	n := c.Pieces(mask, wholeBytes)
	if !c.AsksPorts() {
		return n
	}
	blocks := 1
	for _, m := range c.Matches {
		blocks = max(blocks, m.Src.blocks()*m.Dst.blocks())
	}
	return n * blocks * perBlock
}

// blocks returns the number of port blocks of a side.
func (s *Side) blocks() int {
	left := s.Ports
	if left == nil {
		left = []Span{AllPorts}
	}
	for _, hole := range s.NotPorts {
		var rest []Span
		for _, p := range left {
			rest = append(rest, p.Minus(hole)...)
		}
		left = rest
	}
	n := 0
	for _, p := range left {
		n += classifier.Range{First: p.Lo, Last: p.Hi}.Blocks()
	}
	return max(1, n)
}

// Pieces estimates the number of rules of a clause without the negations of some dimensions.
func (c *Clause) Pieces(mask int, wholeBytes bool) int {
	return c.factor(mask, ofProtocol, wholeBytes) * c.factor(mask, ofSource, wholeBytes) * c.factor(mask, ofDestination, wholeBytes)
}

func (c *Clause) factor(mask int, d dimension, wholeBytes bool) int {
	out := mask>>d&1 != 0
	if d == ofProtocol {
		negated := false
		for _, m := range c.Matches {
			if m.Proto > 0 || m.ICMP != nil {
				return 1
			}
			negated = negated || m.NotProto > 0 || m.NotICMP != nil
		}
		if negated && !out {
			return allProtos
		}
		return 1
	}
	most := 1
	for _, f := range Families {
		n := 0
		for _, m := range c.Matches {
			s := m.sideOf(d)
			if m.Version == felix.IPVersion_IPV4 && f != V4 || m.Version == felix.IPVersion_IPV6 && f != V6 || !s.reaches(f) {
				n = 0
				break
			}
			written := 0
			for _, p := range ofFamily(s.Nets, f) {
				if written++; wholeBytes && f == V6 {
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

func (m *Match) sideOf(d dimension) *Side {
	if d == ofSource {
		return &m.Src
	}
	return &m.Dst
}

// leaves estimates the number of prefixes that the negations of a side leave.
func (s *Side) leaves(f Family, wholeBytes bool) int {
	n := setPieces * len(s.NotSets)
	for _, hole := range ofFamily(s.NotNets, f) {
		from := 0
		if s.Nets != nil {
			at := slices.IndexFunc(s.Nets, func(p netip.Prefix) bool { return p.Bits() <= hole.Bits() && p.Contains(hole.Addr()) })
			if at < 0 {
				continue
			}
			from = s.Nets[at].Bits()
		}
		n += budget.Left(from, hole.Bits(), f == V6, wholeBytes)
	}
	return n
}

// cut returns the match without the negations of some dimensions.
func (m *Match) cut(mask int) *Match {
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
		w.NotProto, w.NotICMP = -1, nil
	}
	if mask>>ofSource&1 != 0 {
		w.Src.NotNets, w.Src.NotSets = nil, nil
	}
	if mask>>ofDestination&1 != 0 {
		w.Dst.NotNets, w.Dst.NotSets = nil, nil
	}
	m.cuts.without[mask] = &w
	return &w
}

// exceptions returns the matches of the negated values of a dimension.
func (m *Match) exceptions(d dimension) []*Match {
	if m.cuts == nil {
		m.cuts = &cuts{}
	}
	if m.cuts.except[d] == nil {
		m.cuts.except[d] = m.newExceptions(d)
	}
	return m.cuts.except[d]
}

func (m *Match) newExceptions(d dimension) []*Match {
	list := []*Match{}
	add := func(change func(*Match)) {
		e := &Match{Proto: -1, NotProto: -1}
		change(e)
		list = append(list, e)
	}
	if d == ofProtocol {
		if m.NotProto > 0 {
			add(func(e *Match) { e.Proto = m.NotProto })
		}
		if m.NotICMP != nil {
			add(func(e *Match) { e.ICMP = m.NotICMP })
		}
		return list
	}
	s := m.sideOf(d)
	if s.NotNets != nil {
		add(func(e *Match) { e.sideOf(d).Nets = s.NotNets })
	}
	for _, id := range s.NotSets {
		add(func(e *Match) { e.sideOf(d).Sets = []string{id} })
	}
	return list
}
