package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// Matches are the fields of what a rule matches. The zero value matches everything.
type Matches struct {
	IPVersion   uint8  `json:"ipVersion,omitempty"` // 4, 6, or 0 for both
	Protocol    string `json:"protocol,omitempty"`  // Felix's name in lower case, or a number
	NotProtocol string `json:"notProtocol,omitempty"`
	ICMP        string `json:"icmp,omitempty"` // type, or type/code
	NotICMP     string `json:"notICMP,omitempty"`
	Source      *Side  `json:"source,omitempty"`
	Destination *Side  `json:"destination,omitempty"`
}

// Side is one side of a rule. Nets are or-ed, and ports; all else is and-ed.
type Side struct {
	Nets        []netip.Prefix `json:"nets,omitempty"`
	NotNets     []netip.Prefix `json:"notNets,omitempty"`
	Ports       []string       `json:"ports,omitempty"` // "80", "8000-8080", or the name of a port
	NotPorts    []string       `json:"notPorts,omitempty"`
	Selector    string         `json:"selector,omitempty"` // of endpoints, in Calico's language
	NotSelector string         `json:"notSelector,omitempty"`
	Service     string         `json:"service,omitempty"` // namespace/name
}

// matchesOf returns the fields of a rule.
func matchesOf(r *model.Rule) *Matches {
	out := &Matches{IPVersion: r.IPVersion, Protocol: r.Protocol.String(), NotProtocol: r.NotProtocol.String(), Source: sideOf(&r.Source), Destination: sideOf(&r.Destination)}
	if r.ICMP != nil {
		out.ICMP = r.ICMP.String()
	}
	if r.NotICMP != nil {
		out.NotICMP = r.NotICMP.String()
	}
	return out
}

// sideOf returns nil for a side that matches everything.
func sideOf(p *model.Peer) *Side {
	texts := func(list []model.PortMatch) (out []string) {
		for _, m := range list {
			out = append(out, m.String())
		}
		return out
	}
	out := &Side{Nets: p.Nets, NotNets: p.NotNets, Ports: texts(p.Ports), NotPorts: texts(p.NotPorts), Selector: p.Selector, NotSelector: p.NotSelector}
	if p.Service.Name != "" {
		out.Service = p.Service.String()
	}
	if len(out.Nets)+len(out.NotNets)+len(out.Ports)+len(out.NotPorts) == 0 && out.Selector+out.NotSelector+out.Service == "" {
		return nil
	}
	return out
}

// isKubernetes separates the policies of Kubernetes, whose rules have a form in the words of kubectl describe.
func isKubernetes(kind model.PolicyKind) bool {
	switch kind {
	case model.KindNetworkPolicy, model.KindAdminNetworkPolicy, model.KindBaselinePolicy, model.KindClusterNetworkPolicy, model.KindStagedKubernetesPolicy:
		return true
	}
	return false
}

// kubernetesWords returns what a rule of a Kubernetes policy matches, in the words of kubectl describe:
//
//	From PodSelector app=client, NamespaceSelector stage=prod; To Port 80/TCP
//
// A pod selector without a namespace selector stands for pods of the policy's namespace. "" everything. It returns false for a rule that has no such words.
func kubernetesWords(r *model.Rule, egress bool) (string, bool) {
	if r.IPVersion != 0 || r.ICMP != nil || r.NotICMP != nil || r.NotProtocol != (model.RuleProtocol{}) || r.HTTP != nil {
		return "", false
	}
	peer, word := &r.Source, "From "
	if egress {
		peer, word = &r.Destination, "To "
	}
	from, ok := peerWords(peer)
	if !ok {
		return "", false
	}
	var parts []string
	if from != "" {
		parts = append(parts, word+from)
	}
	protocol := strings.ToUpper(r.Protocol.String())
	switch ports := r.Destination.Ports; {
	case protocol == "" && len(ports) == 0:
	case len(ports) == 0:
		parts = append(parts, "To Port <any>/"+protocol)
	default:
		var list []string
		for _, p := range ports {
			list = append(list, p.String()+"/"+protocol)
		}
		parts = append(parts, "To Port "+strings.Join(list, ", "))
	}
	return strings.Join(parts, "; "), true
}

// peerWords returns the selectors or the block of a peer.
func peerWords(p *model.Peer) (string, bool) {
	switch {
	case len(p.Nets) > 0 && p.Selector == "":
		var nets []string
		for _, n := range p.Nets {
			nets = append(nets, n.String())
		}
		out := "IPBlock " + strings.Join(nets, ", ")
		if len(p.NotNets) > 0 {
			out += " Except " + strings.Trim(fmt.Sprint(p.NotNets), "[]")
		}
		return out, p.NotSelector == ""
	case p.Selector == "" && p.NotSelector == "" && p.Service.Name == "":
		return "", true
	case p.OriginalSelector == "" || p.NotSelector != "":
		return "", false
	}
	pods, ok := labelWords(strings.TrimPrefix(strings.TrimPrefix(p.OriginalSelector, onlyPods), " && "), "")
	if !ok {
		return "", false
	}
	out := "PodSelector " + pods
	switch {
	case p.OriginalNamespaceSelector == "":
		return out, true
	case p.OriginalNamespaceSelector == anyNamespace:
		return out + ", NamespaceSelector <none>", true // kubectl's word for a selector without requirements
	}
	namespaces, ok := labelWords(p.OriginalNamespaceSelector, model.PrefixNamespace)
	return out + ", NamespaceSelector " + namespaces, ok
}

const (
	onlyPods     = model.LabelOrchestrator + " == '" + model.OrchestratorKubernetes + "'"
	anyNamespace = "has(" + model.LabelNamespace + ")"
)

// labelWords turns the terms that package convert makes of a Kubernetes selector into kubectl's: app=web,stage in (a,b),!old.
func labelWords(terms, prefix string) (string, bool) {
	if terms == "" {
		return "<none>", true
	}
	var out []string
	for _, term := range strings.Split(terms, " && ") {
		word, ok := labelWord(term)
		key, found := strings.CutPrefix(strings.TrimPrefix(word, "!"), prefix)
		if !ok || !found {
			return "", false
		}
		if strings.HasPrefix(word, "!") {
			key = "!" + key
		}
		out = append(out, key)
	}
	return strings.Join(out, ","), true
}

func labelWord(term string) (string, bool) {
	if key, ok := strings.CutPrefix(term, "! has("); ok {
		return "!" + strings.TrimSuffix(key, ")"), true
	}
	if key, ok := strings.CutPrefix(term, "has("); ok {
		return strings.TrimSuffix(key, ")"), true
	}
	if key, value, ok := strings.Cut(term, " == "); ok {
		return key + "=" + strings.Trim(value, "'"), true
	}
	for _, operator := range [][2]string{{" not in { ", " notin ("}, {" in { ", " in ("}} { // the second is a part of the first
		if key, values, ok := strings.Cut(term, operator[0]); ok {
			return key + operator[1] + strings.ReplaceAll(strings.ReplaceAll(strings.TrimSuffix(values, " }"), "'", ""), ", ", ",") + ")", true
		}
	}
	return "", false
}
