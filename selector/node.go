package selector

import "strings"

type op uint8

const (
	opAll op = iota
	opGlobal
	opHas
	opEq
	opNe
	opIn
	opNotIn
	opContains
	opStarts
	opEnds
	opNot // one kid
	opAnd // two kids or more
	opOr  // two kids or more
)

// node is a part of an expression as written, without parentheses and without pairs of exclamation marks.
type node struct {
	op     op
	key    string
	values []string  // one value; for opIn and opNotIn any number, sorted, without duplicates
	one    [1]string // space for a single value
	kids   []*node
}

func compareNode(op op, key, value string) *node {
	n := &node{op: op, key: key, one: [1]string{value}}
	n.values = n.one[:]
	return n
}

// depth is the nesting depth of parentheses in the canonical text.
func (n *node) depth() int {
	d := 0
	for _, kid := range n.kids {
		d = max(d, kid.depth())
	}
	if n.op == opAnd || n.op == opOr {
		d++
	}
	return d
}

// countTests is the number of label tests.
func (n *node) countTests() int {
	if len(n.kids) == 0 && n.op != opAll && n.op != opGlobal {
		return 1
	}
	sum := 0
	for _, kid := range n.kids {
		sum += kid.countTests()
	}
	return sum
}

// appendText appends the canonical text, exactly as Felix writes it: set identifiers are hashes of that text.
func (n *node) appendText(b []byte) []byte {
	switch n.op {
	case opAll:
		return append(b, "all()"...)
	case opGlobal:
		return append(b, "global()"...)
	case opHas:
		return append(append(append(b, "has("...), n.key...), ')')
	case opEq:
		return appendQuoted(n.appendOp(b, " == "), n.values[0])
	case opNe:
		return appendQuoted(n.appendOp(b, " != "), n.values[0])
	case opContains:
		return appendQuoted(n.appendOp(b, " contains "), n.values[0])
	case opStarts:
		return appendQuoted(n.appendOp(b, " starts with "), n.values[0])
	case opEnds:
		return appendQuoted(n.appendOp(b, " ends with "), n.values[0])
	case opIn:
		return n.appendSet(n.appendOp(b, " in {"))
	case opNotIn:
		return n.appendSet(n.appendOp(b, " not in {"))
	case opNot:
		return n.kids[0].appendText(append(b, '!'))
	case opAnd:
		return n.appendKids(b, " && ")
	default:
		return n.appendKids(b, " || ")
	}
}

func (n *node) appendOp(b []byte, op string) []byte { return append(append(b, n.key...), op...) }

func (n *node) appendSet(b []byte) []byte {
	for i, v := range n.values {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendQuoted(b, v)
	}
	return append(b, '}')
}

func (n *node) appendKids(b []byte, glue string) []byte {
	b = append(b, '(')
	for i, kid := range n.kids {
		if i > 0 {
			b = append(b, glue...)
		}
		b = kid.appendText(b)
	}
	return append(b, ')')
}

// appendQuoted relies on a value not containing both kinds of quotes: the language cannot express one.
func appendQuoted(b []byte, value string) []byte {
	quote := byte('"')
	if strings.Contains(value, `"`) {
		quote = '\''
	}
	return append(append(append(b, quote), value...), quote)
}
