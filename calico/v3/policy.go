// Package v3 holds policies of projectcalico.org/v3 as they are written, and turns their text into ports, protocols, networks
// and selectors. It is the one form between an object and its two results: source/convert makes a model.Policy of it, and
// calico/datastore makes the stored value.
//
// Invariant: both results contain the same selectors, ports and protocols, because only this package derives them. The JSON of
// a rule equals what Calico v3.31 writes.
//
// Two differences between the results are intended. model.Policy adds to a selector that Nodes' network sets do not match it
// (model.NodeSet), which Calico does not have. And model.Policy omits what no data plane here uses: HTTP matches, rules of a
// direction that the policy does not govern.
package v3

import (
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// Policy is the spec of a policy of any kind; fields that its kind does not have are zero.
type Policy struct {
	GlobalSpec
	StagedAction string `json:"stagedAction,omitempty"`
}

// Spec is the spec of a NetworkPolicy.
type Spec struct {
	Tier                   string   `json:"tier,omitempty"`
	Order                  *float64 `json:"order,omitempty"`
	Ingress                []Rule   `json:"ingress,omitempty"`
	Egress                 []Rule   `json:"egress,omitempty"`
	Selector               string   `json:"selector,omitempty"`
	Types                  []string `json:"types,omitempty"` // Ingress, Egress
	ServiceAccountSelector string   `json:"serviceAccountSelector,omitempty"`
	PerformanceHints       []string `json:"performanceHints,omitempty"`
}

// GlobalSpec is the spec of a GlobalNetworkPolicy.
type GlobalSpec struct {
	Spec
	NamespaceSelector string `json:"namespaceSelector,omitempty"`
	DoNotTrack        bool   `json:"doNotTrack,omitempty"`
	PreDNAT           bool   `json:"preDNAT,omitempty"`
	ApplyOnForward    bool   `json:"applyOnForward,omitempty"`
}

// ProfileSpec is the spec of a Profile.
type ProfileSpec struct {
	Ingress       []Rule            `json:"ingress,omitempty"`
	Egress        []Rule            `json:"egress,omitempty"`
	LabelsToApply map[string]string `json:"labelsToApply,omitempty"`
}

// Subject returns the selector of the endpoints that the policy applies to; namespace is "" for a cluster-wide policy. A
// cluster-wide policy that selects by namespace or service account applies only to endpoints that have one. Subject returns a
// *selector.SyntaxError if a selector of namespaces or service accounts does not parse; it does not check Selector.
func (s *GlobalSpec) Subject(namespace string) (string, error) {
	if namespace != "" {
		text := inNamespace(namespace)
		if s.Selector != "" {
			text = "(" + s.Selector + ") && " + text
		}
		return and(text, s.ServiceAccountSelector, model.PrefixServiceAccount)
	}
	text, err := and(s.Selector, s.NamespaceSelector, model.PrefixNamespace)
	if err == nil && s.NamespaceSelector != "" {
		text = strings.ReplaceAll(text, "all()", inAnyNamespace)
	}
	if err == nil && s.ServiceAccountSelector != "" {
		text, err = and(text, s.ServiceAccountSelector, model.PrefixServiceAccount)
		text = strings.ReplaceAll(text, "all()", "has("+model.LabelServiceAccount+")")
	}
	return text, err
}
