package selector

import (
	"crypto/sha256"
	"encoding/base64"
)

// Selector is one parsed expression. The zero value matches nothing and has neither text nor identifier: use Parse or All.
type Selector struct {
	text    string
	id      string
	program program
	anchors [][]Term
}

// Parse reads an expression. Empty or blank text means all(). The error is a *SyntaxError.
func Parse(text string) (*Selector, error) { return ParsePrefixed(text, "") }

// ParsePrefixed reads an expression and puts prefix before each label key in it: so a selector of namespaces
// becomes one of endpoints, which carry their namespace's labels under such a prefix (Calico's "pcns."; "pcsa." for
// service accounts). A key that gets longer than MaxKeyLength is an error, as is a prefix that is no key itself.
func ParsePrefixed(text, prefix string) (*Selector, error) {
	root, err := parse(text, prefix)
	if err != nil {
		return nil, err
	}
	return build(root, len(text)), nil
}

// All is the selector all().
func All() *Selector { return build(&node{op: opAll}, 0) }

// build makes a selector of an expression that was about so long.
func build(root *node, about int) *Selector {
	text := string(root.appendText(make([]byte, 0, about+16)))
	var known symbols
	return &Selector{text: text, id: uniqueID("s", text), program: compile(root, &known), anchors: analyse(root, false).anchors(&known)}
}

// String is the canonical text: one spelling of operators, double quotes where the value allows, sets sorted, every
// && and || in parentheses. Parse(s.String()) matches what s does; its text is the same, unless s negates a negation in
// parentheses, "!(!x)": there Felix writes "!!x", which it reads as "x".
func (s *Selector) String() string { return s.text }

// UniqueID is Felix's identifier of the set of endpoints s selects: equal if and only if the texts are.
func (s *Selector) UniqueID() string { return s.id }

// NamedPortID is Felix's identifier of the set of addresses and ports that endpoints selected by s call by a name.
// Protocol is "tcp", "udp" or "sctp".
func (s *Selector) NamedPortID(protocol, port string) string {
	return uniqueID("n", s.id+","+protocol+","+port)
}

// ServiceID is Felix's identifier of the set of addresses and ports behind a Service.
func ServiceID(namespace, name string) string { return uniqueID("svc", namespace+"/"+name) }

// ServiceNoPortID is Felix's identifier of the set of addresses alone behind a Service.
func ServiceNoPortID(namespace, name string) string { return uniqueID("svcnoport", namespace+"/"+name) }

// uniqueID is Felix's hash of content, within the name space of its kind.
func uniqueID(kind, content string) string {
	var room [512]byte
	sum := sha256.Sum224(append(append(append(room[:0], kind...), ':'), content...))
	return string(base64.RawURLEncoding.AppendEncode(append(append(room[:0], kind...), ':'), sum[:]))
}
