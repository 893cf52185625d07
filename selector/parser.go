package selector

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// MaxKeyLength is the maximum length of a label key in bytes, as in Felix.
	MaxKeyLength = 512
	// MaxDepth is the maximum nesting of parentheses, in the text and in its canonical form. Felix has no limit;
	// without one a short text can take long to parse, and a long text exhausts the stack.
	MaxDepth = 200
)

// SyntaxError says where a text is not a selector.
type SyntaxError struct {
	Text   string // the whole text
	Offset int    // position of the parser, in bytes
	Reason string // what the parser expected there
}

// Error is one line: reason, offset and text (cut if it is long).
func (e *SyntaxError) Error() string {
	text, more := e.Text, ""
	if len(text) > 200 {
		text, more = text[:200], "..."
	}
	return fmt.Sprintf("selector: %s at offset %d of %q%s", e.Reason, e.Offset, text, more)
}

// parser reads
//
//	or      = and { "||" and }
//	and     = operand { "&&" operand }
//	operand = { "!" } ( "(" or ")" | "all()" | "global()" | "has(" key ")" | key test )
//	test    = ( "==" | "!=" | "contains" | "starts with" | "ends with" ) value | ( "in" | "not in" ) set
//	set     = "{" { value "," } [ value ] "}"
//	value   = '"' anything but '"' '"' | "'" anything but "'" "'"
//	key     = 1 to 512 of A-Z a-z 0-9 _ . / -
//
// with spaces and tabs between words. The two words of an operator may stand without a space; all, global and has must
// be followed directly by the opening parenthesis.
type parser struct {
	text   string
	at     int
	depth  int
	prefix string
}

func parse(text, prefix string) (*node, error) {
	p := &parser{text: text, prefix: prefix}
	if prefix != "" && strings.TrimLeftFunc(prefix, isKeyRune) != "" {
		return nil, p.syntaxError(fmt.Sprintf("prefix %q is no label key", prefix))
	}
	p.space()
	if p.at == len(text) {
		return &node{op: opAll}, nil
	}
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.at != len(text) {
		return nil, p.syntaxError("expected &&, || or the end")
	}
	if root.depth() > MaxDepth {
		return nil, p.syntaxError(fmt.Sprintf("&& and || nest deeper than %d", MaxDepth))
	}
	return root, nil
}

func (p *parser) syntaxError(reason string) error {
	return &SyntaxError{Text: p.text, Offset: p.at, Reason: reason}
}

func (p *parser) space() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

// eat consumes word and the space after it.
func (p *parser) eat(word string) bool {
	if !strings.HasPrefix(p.text[p.at:], word) {
		return false
	}
	p.at += len(word)
	p.space()
	return true
}

func (p *parser) or() (*node, error)  { return p.chain(opOr, "||") }
func (p *parser) and() (*node, error) { return p.chain(opAnd, "&&") }

// chain reads operands joined by op.
func (p *parser) chain(op op, glue string) (*node, error) {
	first, err := p.link(op)
	if err != nil || !strings.HasPrefix(p.text[p.at:], glue) {
		return first, err
	}
	n := &node{op: op, kids: append(make([]*node, 0, 4), first)}
	for p.eat(glue) {
		kid, err := p.link(op)
		if err != nil {
			return nil, err
		}
		n.kids = append(n.kids, kid)
	}
	return n, nil
}

func (p *parser) link(op op) (*node, error) {
	if op == opOr {
		return p.and()
	}
	return p.operand()
}

func (p *parser) operand() (*node, error) {
	negated := false
	for p.eat("!") {
		negated = !negated
	}
	n, err := p.primary()
	if err != nil || !negated {
		return n, err
	}
	return &node{op: opNot, kids: []*node{n}}, nil
}

func (p *parser) primary() (*node, error) {
	switch {
	case p.eat("("):
		return p.parentheses()
	case p.eat("has("):
		key, err := p.labelKey()
		if err != nil {
			return nil, err
		}
		return p.closed(&node{op: opHas, key: key})
	case p.eat("all("):
		return p.closed(&node{op: opAll})
	case p.eat("global("):
		return p.closed(&node{op: opGlobal})
	}
	key, err := p.labelKey()
	if err != nil {
		return nil, err
	}
	return p.test(key)
}

func (p *parser) parentheses() (*node, error) {
	if p.depth++; p.depth > MaxDepth {
		return nil, p.syntaxError(fmt.Sprintf("parentheses nest deeper than %d", MaxDepth))
	}
	n, err := p.or()
	if err != nil {
		return nil, err
	}
	p.depth--
	return p.closed(n)
}

func (p *parser) closed(n *node) (*node, error) {
	if !p.eat(")") {
		return nil, p.syntaxError("expected )")
	}
	return n, nil
}

func (p *parser) labelKey() (string, error) {
	end := p.at
	for end < len(p.text) && isKeyByte(p.text[end]) {
		end++
	}
	if end == p.at {
		return "", p.syntaxError("expected a label key, has(), all(), global(), ! or (")
	}
	key := p.prefix + p.text[p.at:end]
	if len(key) > MaxKeyLength {
		return "", p.syntaxError(fmt.Sprintf("label key longer than %d bytes", MaxKeyLength))
	}
	p.at = end
	p.space()
	return key, nil
}

func (p *parser) test(key string) (*node, error) {
	switch {
	case p.eat("=="):
		return p.comparison(opEq, key)
	case p.eat("!="):
		return p.comparison(opNe, key)
	case p.eat("contains"):
		return p.comparison(opContains, key)
	case p.eatTwo("starts", "with"):
		return p.comparison(opStarts, key)
	case p.eatTwo("ends", "with"):
		return p.comparison(opEnds, key)
	case p.eatTwo("not", "in"):
		return p.valueSet(opNotIn, key)
	case p.eat("in"):
		return p.valueSet(opIn, key)
	}
	return nil, p.syntaxError(fmt.Sprintf("expected an operator behind label key %q", key))
}

func (p *parser) eatTwo(first, second string) bool {
	start := p.at
	if p.eat(first) && p.eat(second) {
		return true
	}
	p.at = start
	return false
}

func (p *parser) comparison(op op, key string) (*node, error) {
	value, ok, err := p.value()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, p.syntaxError("expected a value in quotes")
	}
	return compareNode(op, key, value), nil
}

// valueSet reads values in braces. As in Felix, the set may be empty, and the last value may have a comma after it.
func (p *parser) valueSet(op op, key string) (*node, error) {
	if !p.eat("{") {
		return nil, p.syntaxError("expected {")
	}
	n := &node{op: op, key: key}
	for {
		value, ok, err := p.value()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		n.values = append(n.values, value)
		if !p.eat(",") {
			break
		}
	}
	if !p.eat("}") {
		return nil, p.syntaxError("expected }")
	}
	slices.Sort(n.values)
	n.values = slices.Compact(n.values)
	return n, nil
}

// value reads a quoted string, which has no escapes. ok is false if there is no quote.
func (p *parser) value() (value string, ok bool, err error) {
	if p.at == len(p.text) || p.text[p.at] != '"' && p.text[p.at] != '\'' {
		return "", false, nil
	}
	rest := p.text[p.at+1:]
	end := strings.IndexByte(rest, p.text[p.at])
	if end < 0 {
		return "", false, p.syntaxError("missing closing quote")
	}
	p.at += end + 2
	p.space()
	return rest[:end], true, nil
}

func isKeyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '/' || c == '-'
}

func isKeyRune(r rune) bool { return r < 128 && isKeyByte(byte(r)) }
