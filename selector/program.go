package selector

import (
	"slices"
	"strings"
)

// program is an expression as a list of tests. Each test names the next one for both outcomes, so no test runs twice or
// after the outcome is certain, and !, !=, not in, all() and global() cost nothing. The zero value matches nothing.
type program struct {
	tests []test
	sets  []symbolSet
	start target
}

// target is where to continue: an outcome, or the test at target - firstTest.
type target uint32

const (
	missed target = iota
	matched
	firstTest
)

// test asks one question about one label. A label that does not exist passes no test.
type test struct {
	key     Symbol
	arg     Symbol // opEq, opContains, opStarts, opEnds
	set     uint32 // opIn: index in the program's sets
	yes, no target
	op      op
}

// symbolSet holds the values of an opIn test: a list, or a map if they are more than scanAtMost.
type symbolSet struct {
	list []Symbol
	many map[Symbol]struct{}
}

const scanAtMost = 16

func (s *symbolSet) hasSymbol(value Symbol) bool {
	if s.many != nil {
		_, ok := s.many[value]
		return ok
	}
	return slices.Contains(s.list, value)
}

func compile(root *node, known *symbols) program {
	c := compiler{known: known, tests: make([]test, 0, root.countTests())}
	start := c.addTests(root, matched, missed)
	return program{tests: c.tests, sets: slices.Clone(c.sets), start: start} // cloned without the spare capacity
}

type compiler struct {
	tests []test
	sets  []symbolSet
	known *symbols
}

// addTests appends the tests of n, from the last part to the first, and returns where they start.
func (p *compiler) addTests(n *node, yes, no target) target {
	switch n.op {
	case opAll, opGlobal:
		return yes
	case opNot:
		return p.addTests(n.kids[0], no, yes)
	case opAnd:
		for _, kid := range slices.Backward(n.kids) {
			yes = p.addTests(kid, yes, no)
		}
		return yes
	case opOr:
		for _, kid := range slices.Backward(n.kids) {
			no = p.addTests(kid, yes, no)
		}
		return no
	case opNe:
		return p.test(n, opEq, no, yes)
	case opNotIn:
		return p.test(n, opIn, no, yes)
	default:
		return p.test(n, n.op, yes, no)
	}
}

func (p *compiler) test(n *node, op op, yes, no target) target {
	t := test{op: op, key: p.known.symbolOf(n.key), yes: yes, no: no}
	switch op {
	case opHas:
	case opIn:
		t.set = uint32(len(p.sets))
		p.sets = append(p.sets, newSymbolSet(n.values))
	default:
		t.arg = p.known.symbolOf(n.values[0])
	}
	p.tests = append(p.tests, t)
	return target(len(p.tests)-1) + firstTest
}

func newSymbolSet(values []string) symbolSet {
	if len(values) > scanAtMost {
		many := make(map[Symbol]struct{}, len(values))
		for _, v := range values {
			many[Intern(v)] = struct{}{}
		}
		return symbolSet{many: many}
	}
	list := make([]Symbol, len(values))
	for i, v := range values {
		list[i] = Intern(v)
	}
	return symbolSet{list: list}
}

// Matches reports whether s selects an item with these labels. Symbols are faster than other Labels; nil means no
// labels.
func (s *Selector) Matches(labels Labels) bool {
	p := &s.program
	switch l := labels.(type) {
	case nil:
		labels = Map(nil)
	case Symbols:
		return p.matches(l)
	}
	at := p.start
	for at >= firstTest {
		t := &p.tests[at-firstTest]
		at = t.no
		if value, ok := labels.Get(t.key.Value()); ok && p.passesText(t, value) {
			at = t.yes
		}
	}
	return at == matched
}

// matches is Matches for Symbols.
func (p *program) matches(labels Symbols) bool {
	var key, value Symbol // of the last test: consecutive tests often have the same key
	var ok bool
	at := p.start
	for at >= firstTest {
		t := &p.tests[at-firstTest]
		if t.key != key {
			key = t.key
			value, ok = labels.Lookup(key)
		}
		at = t.no
		if ok && p.passes(t, value) {
			at = t.yes
		}
	}
	return at == matched
}

func (p *program) passes(t *test, value Symbol) bool {
	switch t.op {
	case opEq:
		return value == t.arg
	case opHas:
		return true
	case opIn:
		return p.sets[t.set].hasSymbol(value)
	}
	return passesPart(t, value.Value())
}

func (p *program) passesText(t *test, value string) bool {
	switch t.op {
	case opEq:
		return value == t.arg.Value()
	case opHas:
		return true
	case opIn:
		return p.sets[t.set].hasSymbol(Intern(value))
	}
	return passesPart(t, value)
}

func passesPart(t *test, value string) bool {
	switch t.op {
	case opContains:
		return strings.Contains(value, t.arg.Value())
	case opStarts:
		return strings.HasPrefix(value, t.arg.Value())
	default: // opEnds
		return strings.HasSuffix(value, t.arg.Value())
	}
}
