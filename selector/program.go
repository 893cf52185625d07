package selector

import (
	"slices"
	"strings"
)

// program is an expression as a list of tests, each of which says where to go on: no test is made twice, none that
// cannot change the outcome any more, and !, !=, not in, all() and global() cost nothing. The zero value matches nothing.
type program struct {
	tests  []test
	values []Symbol // of all opIn tests
	start  target
}

// target is where to go on: an outcome, or the test at target - firstTest.
type target uint32

const (
	missed target = iota
	matched
	firstTest
)

// test asks one thing of one label. A label that is not there passes no test.
type test struct {
	key      Symbol
	arg      Symbol // opEq, opContains, opStarts, opEnds
	from, to uint32 // opIn: its values, sorted by text
	yes, no  target
	op       op
}

// scanAtMost is how many values are compared one by one; more are searched by halves.
const scanAtMost = 16

func compile(root *node) program {
	var p program
	p.start = p.add(root, matched, missed)
	p.tests, p.values = slices.Clip(p.tests), slices.Clip(p.values)
	return p
}

// add appends what n needs, from its last part to its first, and returns where it starts.
func (p *program) add(n *node, yes, no target) target {
	switch n.op {
	case opAll, opGlobal:
		return yes
	case opNot:
		return p.add(n.kids[0], no, yes)
	case opAnd:
		for _, kid := range slices.Backward(n.kids) {
			yes = p.add(kid, yes, no)
		}
		return yes
	case opOr:
		for _, kid := range slices.Backward(n.kids) {
			no = p.add(kid, yes, no)
		}
		return no
	case opNe:
		return p.test(test{op: opEq, key: Intern(n.key), arg: Intern(n.values[0]), yes: no, no: yes})
	case opIn:
		return p.test(p.in(n, yes, no))
	case opNotIn:
		return p.test(p.in(n, no, yes))
	case opHas:
		return p.test(test{op: opHas, key: Intern(n.key), yes: yes, no: no})
	default:
		return p.test(test{op: n.op, key: Intern(n.key), arg: Intern(n.values[0]), yes: yes, no: no})
	}
}

func (p *program) test(t test) target {
	p.tests = append(p.tests, t)
	return target(len(p.tests)-1) + firstTest
}

func (p *program) in(n *node, yes, no target) test {
	from := uint32(len(p.values))
	for _, v := range n.values {
		p.values = append(p.values, Intern(v))
	}
	return test{op: opIn, key: Intern(n.key), from: from, to: uint32(len(p.values)), yes: yes, no: no}
}

// Matches tells whether s selects what is labelled so. A *Set is fastest; nil is no labels.
func (s *Selector) Matches(labels Labels) bool {
	switch set := labels.(type) {
	case *Set:
		return s.matchesSet(set)
	case nil:
		return s.matchesSet(nil)
	}
	p := &s.program
	at := p.start
	for at >= firstTest {
		t := &p.tests[at-firstTest]
		if value, ok := labels.Get(t.key.Value()); ok && p.passesText(t, value) {
			at = t.yes
		} else {
			at = t.no
		}
	}
	return at == matched
}

func (s *Selector) matchesSet(set *Set) bool {
	p := &s.program
	at := p.start
	for at >= firstTest {
		t := &p.tests[at-firstTest]
		if value, ok := set.Lookup(t.key); ok && p.passes(t, value) {
			at = t.yes
		} else {
			at = t.no
		}
	}
	return at == matched
}

func (p *program) passes(t *test, value Symbol) bool {
	switch t.op {
	case opHas:
		return true
	case opEq:
		return value == t.arg
	case opIn:
		if values := p.values[t.from:t.to]; len(values) <= scanAtMost {
			return slices.Contains(values, value)
		}
	}
	return p.passesText(t, value.Value())
}

func (p *program) passesText(t *test, value string) bool {
	switch t.op {
	case opHas:
		return true
	case opEq:
		return value == t.arg.Value()
	case opIn:
		_, found := slices.BinarySearchFunc(p.values[t.from:t.to], value, func(s Symbol, v string) int {
			return strings.Compare(s.Value(), v)
		})
		return found
	case opContains:
		return strings.Contains(value, t.arg.Value())
	case opStarts:
		return strings.HasPrefix(value, t.arg.Value())
	default: // opEnds
		return strings.HasSuffix(value, t.arg.Value())
	}
}
