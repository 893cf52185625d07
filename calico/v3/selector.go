package v3

import (
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
)

// inAnyNamespace is the meaning of all() in a selector of namespaces; the negation is the meaning of global().
const inAnyNamespace = "has(" + model.LabelNamespace + ")"

func inNamespace(name string) string { return model.LabelNamespace + " == '" + name + "'" }

// Prefixed returns the canonical text of a selector with prefix before each label: a selector of namespaces or service accounts
// becomes one of the endpoints that inherit their labels. An empty selector stays empty. Prefixed returns a
// *selector.SyntaxError if text does not parse.
func Prefixed(text, prefix string) (string, error) {
	if text == "" {
		return "", nil
	}
	s, err := selector.ParsePrefixed(text, prefix)
	if err != nil {
		return "", err
	}
	return s.String(), nil
}

// PeerSelector joins all conditions that one side of a rule puts on endpoints: labels, service accounts and namespaces. If a
// policy in a namespace has any selector but no selector of namespaces, it means its own namespace; namespace is "" for a
// cluster-wide policy. "" means that there are no conditions. PeerSelector returns a *selector.SyntaxError as Prefixed does; it
// does not check Selector.
func (e *Entity) PeerSelector(namespace string) (string, error) {
	text, err := e.ServiceAccounts.selector()
	if err != nil {
		return "", err
	}
	switch {
	case text != "" && e.Selector != "":
		text = "(" + text + ") && (" + e.Selector + ")"
	case text == "":
		text = e.Selector
	}
	namespaces := ""
	switch {
	case e.NamespaceSelector != "":
		if namespaces, err = Prefixed(e.NamespaceSelector, model.PrefixNamespace); err != nil {
			return "", err
		}
		namespaces = strings.ReplaceAll(namespaces, "all()", inAnyNamespace)
		namespaces = strings.ReplaceAll(namespaces, "global()", "!"+inAnyNamespace)
	case namespace != "" && (text != "" || e.NotSelector != ""):
		namespaces = inNamespace(namespace)
	}
	switch {
	case namespaces == "":
		return text, nil
	case text == "":
		return namespaces, nil
	}
	return "(" + namespaces + ") && (" + text + ")", nil
}

// selector joins the names and labels of service accounts; nil adds no condition.
func (a *Accounts) selector() (string, error) {
	if a == nil {
		return "", nil
	}
	byLabel, err := Prefixed(a.Selector, model.PrefixServiceAccount)
	if err != nil || len(a.Names) == 0 {
		return byLabel, err
	}
	byName, err := Prefixed(model.LabelServiceAccount+" in { '"+strings.Join(a.Names, "', '")+"' }", "")
	if byLabel != "" {
		byName = "(" + byLabel + ") && (" + byName + ")"
	}
	return byName, err
}

// and joins a selector with one of inherited labels; either may be empty.
func and(text, inherited, prefix string) (string, error) {
	more, err := Prefixed(inherited, prefix)
	if err != nil || more == "" || text == "" {
		return text + more, err
	}
	return "(" + text + ") && " + more, nil
}
