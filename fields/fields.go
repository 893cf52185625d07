// Package fields turns names of objects and of rules, as lines for people have them, into fields for programs.
//
//	"NetworkPolicy prod/web" ─▶ Object: kind, namespace, name
//	"ingress rule 2"         ─▶ Rule: direction, number
//
// Invariant: the String of a result is the text that it was read from.
package fields

import (
	"strconv"
	"strings"
)

// Object names an object of Kubernetes or Calico.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"` // "": the object has none
	Name      string `json:"name"`
}

// manifest is the kind of a part of a file that is no known object. Its name is a path.
const manifest = "Manifest"

// ObjectOf reads "NetworkPolicy prod/web", or "AdminNetworkPolicy guard". Nil: the text names no object, as "VPP" and the keys of values do not.
func ObjectOf(text string) *Object {
	kind, full, found := strings.Cut(text, " ")
	if !found || !isKind(kind) || full == "" || strings.ContainsAny(full, " \n") {
		return nil
	}
	o := &Object{Kind: kind, Name: full}
	if namespace, name, two := strings.Cut(full, "/"); two && kind != manifest {
		if namespace == "" || name == "" || strings.Contains(name, "/") {
			return nil
		}
		o.Namespace, o.Name = namespace, name
	}
	return o
}

// isKind reports whether a word is written as kinds are: NetworkPolicy.
func isKind(word string) bool {
	for i, r := range word {
		upper := r >= 'A' && r <= 'Z'
		if i == 0 && !upper || !upper && (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return false
		}
	}
	return word != ""
}

// String is "NetworkPolicy prod/web".
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Rule names a rule of a policy.
type Rule struct {
	Direction string `json:"direction"`      // ingress or egress
	Number    int    `json:"number"`         // as the object counts its rules, from 1
	Name      string `json:"name,omitempty"` // of the rule; "": it has none
}

// RuleOf reads "ingress rule 2", or "egress rule 3 (no-telnet)". Nil: the text has another form, as "end of tier".
func RuleOf(text string) *Rule {
	direction, rest, found := strings.Cut(text, " rule ")
	if !found || direction != "ingress" && direction != "egress" {
		return nil
	}
	digits, name, named := strings.Cut(rest, " (")
	number, err := strconv.Atoi(digits)
	if err != nil || number < 1 || strconv.Itoa(number) != digits || named && (!strings.HasSuffix(name, ")") || name == ")") {
		return nil
	}
	return &Rule{Direction: direction, Number: number, Name: strings.TrimSuffix(name, ")")}
}

// String is "ingress rule 2".
func (r Rule) String() string {
	text := r.Direction + " rule " + strconv.Itoa(r.Number)
	if r.Name != "" {
		text += " (" + r.Name + ")"
	}
	return text
}
