package selector

import (
	"crypto/sha256"
	"encoding/base64"
)

// Selector is one parsed expression. The zero value matches nothing and has neither text nor identifier: use Parse or
// All.
type Selector struct {
	text    string
	id      string
	program program
	anchors [][]Term
}

// Parse reads an expression. Empty or blank text means all(). The error is a *SyntaxError.
func Parse(text string) (*Selector, error) { return ParsePrefixed(text, "") }

// ParsePrefixed reads an expression and puts prefix before each label key. It turns a selector of namespaces into one
// of endpoints, which carry their namespace's labels under such a prefix (Calico's "pcns."; "pcsa." for service
// accounts). A key that becomes longer than MaxKeyLength is an error, as is a prefix that is no key itself.
func ParsePrefixed(text, prefix string) (*Selector, error) {
	root, err := parse(text, prefix)
	if err != nil {
		return nil, err
	}
	return build(root, len(text)), nil
}

// All is the selector all().
func All() *Selector { return build(&node{op: opAll}, 0) }

// build makes a selector from an expression; about is the approximate length of its text.
func build(root *node, about int) *Selector {
	text := string(root.appendText(make([]byte, 0, about+16)))
	var known symbols
	return &Selector{text: text, id: uniqueID("s", text), program: compile(root, &known), anchors: analyse(root, false).anchors(&known)}
}

// String is the canonical text: one spelling of operators, double quotes where the value allows, sorted sets, every &&
// and || in parentheses. Parse(s.String()) matches the same labels. Its text is the same, unless s negates a negation
// in parentheses, "!(!x)": Felix writes "!!x" there, which it reads as "x".
func (s *Selector) String() string { return s.text }

// UniqueID is Felix's identifier of the set of endpoints that s selects. It is equal if and only if the texts are.
func (s *Selector) UniqueID() string { return s.id }

// NamedPortID is Felix's identifier of the set of addresses and ports of a named port, of the endpoints that s selects.
// Protocol is "tcp", "udp" or "sctp".
func (s *Selector) NamedPortID(protocol, port string) string {
	return uniqueID("n", s.id+","+protocol+","+port)
}

// ServiceID is Felix's identifier of the set of addresses and ports behind a Service.
func ServiceID(namespace, name string) string { return uniqueID("svc", namespace+"/"+name) }

// ServiceNoPortID is Felix's identifier of the set of addresses behind a Service, without ports.
func ServiceNoPortID(namespace, name string) string { return uniqueID("svcnoport", namespace+"/"+name) }

// uniqueID is Felix's hash of content, with a prefix for its kind.
func uniqueID(kind, content string) string {
	var room [512]byte
	sum := sha256.Sum224(append(append(append(room[:0], kind...), ':'), content...))
	return string(base64.RawURLEncoding.AppendEncode(append(append(room[:0], kind...), ':'), sum[:]))
}
