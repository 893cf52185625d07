package convert

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// understood reports whether no problem was added since their number was known.
func (ps *problems) understood(known int) bool { return len(ps.List) == known }

// convertRules converts the rules of one direction with one, which returns the rule's action, and the rule as one or more model
// rules. A rule with a problem, or beyond the limit of most rules (0: no limit), fails closed. If the list itself is
// unreadable, everything is denied.
func (ps *problems) convertRules(field, direction string, n, most int, one func(field string, i int) (model.Action, []model.Rule)) []model.Rule {
	if ps.Lost(field) {
		return []model.Rule{{Action: model.ActionDeny, Origin: direction + " rules"}}
	}
	if most > 0 && n > most {
		ps.Add(field, fmt.Sprintf("must have at most %d entries", most), n)
	}
	var out []model.Rule
	for i := range n {
		f, known := check.ElementPath(field, i), len(ps.List)
		action, rules := one(f, i)
		switch {
		case ps.Spoilt(f):
			ps.List = ps.List[:known] // reported already, as a misfit
			fallthrough
		case most > 0 && i >= most, !ps.understood(known):
			action, rules = closed(action)
		}
		for _, r := range rules {
			r.Action, r.Origin = action, fmt.Sprintf("%s rule %d", direction, i+1)
			out = append(out, r)
		}
	}
	return out
}

// subject reads the selector of a policy's endpoints, from the given fields. If they are not understood, the policy is distrusted and
// applies to widest, the most it could have meant.
func (ps *problems) subject(widest string, read func() string, fields ...string) string {
	known, text := len(ps.List), ""
	lost := slices.ContainsFunc(fields, ps.Spoilt)
	if !lost {
		text = read()
	}
	if lost || !ps.understood(known) {
		ps.Distrusted = true
		return widest
	}
	return text
}

// first returns an order before all others, for a policy whose place is not understood.
func first() model.Order { return model.OrderOf(-math.MaxFloat64) }

// applyDistrust applies distrust to a policy that has been read.
func (ps *problems) applyDistrust(p *model.Policy) {
	for _, path := range ps.Broken {
		if !check.InPath(path, "spec.ingress") && !check.InPath(path, "spec.egress") {
			ps.Distrusted = true
		}
	}
	if ps.Distrusted {
		distrust(p)
	}
}

// closed returns the effect of a rule that is not understood: one that allows or only logs does nothing; any other one
// denies all.
func closed(a model.Action) (model.Action, []model.Rule) {
	if a == model.ActionAllow || a == model.ActionLog {
		return a, nil
	}
	return model.ActionDeny, []model.Rule{{}}
}

// distrust makes the whole policy fail closed, because its subject or its place is not understood: it allows nothing, and
// denies what it would have passed to the next tier.
func distrust(p *model.Policy) {
	for _, list := range []*[]model.Rule{&p.InboundRules, &p.OutboundRules} {
		kept := slices.DeleteFunc(*list, func(r model.Rule) bool { return r.Action.Allows() })
		for i := range kept {
			if kept[i].Action.Passes() {
				kept[i].Action = model.ActionDeny
			}
		}
		*list = slices.Clip(kept)
		if len(kept) == 0 {
			*list = nil
		}
	}
}

// onlyPods selects all endpoints that Kubernetes runs.
const onlyPods = model.LabelOrchestrator + " == '" + model.OrchestratorKubernetes + "'"

// inAnyNamespace is the meaning of an empty selector of namespaces.
const inAnyNamespace = "has(" + model.LabelNamespace + ")"

func inNamespace(name string) string { return model.LabelNamespace + " == '" + name + "'" }

// podSelector converts a Kubernetes selector of pods to the selector language; nil selects all pods.
func (ps *problems) podSelector(field string, s *metav1.LabelSelector) string {
	return strings.Join(append([]string{onlyPods}, ps.terms(field, s, "")...), " && ")
}

// namespaceSelector converts a Kubernetes selector of namespaces to a selector of endpoints in them.
func (ps *problems) namespaceSelector(field string, s *metav1.LabelSelector) string {
	if terms := ps.terms(field, s, model.PrefixNamespace); len(terms) > 0 {
		return strings.Join(terms, " && ")
	}
	return inAnyNamespace
}

// nodeSelector converts a Kubernetes selector of nodes to a selector of their network sets (model.NodeSet).
func (ps *problems) nodeSelector(field string, s *metav1.LabelSelector) string {
	terms := []string{"has(" + model.LabelNode + ")"}
	return strings.Join(append(terms, ps.terms(field, s, model.PrefixNode)...), " && ")
}

// terms returns the requirements of a Kubernetes selector, with prefix before each key. A missing key satisfies NotIn, in
// Kubernetes as in the selector language.
func (ps *problems) terms(field string, s *metav1.LabelSelector, prefix string) []string {
	if s == nil {
		return nil
	}
	var out []string
	for _, k := range sortedKeys(s.MatchLabels) {
		f, v := field+".matchLabels["+k+"]", s.MatchLabels[k]
		if ps.labelKey(f, k) && ps.labelValue(f, v) {
			out = append(out, prefix+k+" == '"+v+"'")
		}
	}
	for i := range s.MatchExpressions {
		if t := ps.expression(check.ElementPath(field+".matchExpressions", i), &s.MatchExpressions[i], prefix); t != "" {
			out = append(out, t)
		}
	}
	return out
}

func (ps *problems) expression(field string, e *metav1.LabelSelectorRequirement, prefix string) string {
	known := len(ps.List)
	ps.labelKey(field+".key", e.Key)
	for i, v := range e.Values {
		ps.labelValue(check.ElementPath(field+".values", i), v)
	}
	operator := ""
	switch e.Operator {
	case metav1.LabelSelectorOpIn:
		operator = "in"
	case metav1.LabelSelectorOpNotIn:
		operator = "not in"
	case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		if len(e.Values) > 0 {
			ps.Add(field+".values", "must be empty for Exists and DoesNotExist", len(e.Values))
		}
	default:
		ps.Add(field+".operator", "must be In, NotIn, Exists or DoesNotExist", string(e.Operator))
	}
	if operator != "" && len(e.Values) == 0 {
		ps.Add(field+".values", "must not be empty for In and NotIn", nil)
	}
	switch {
	case !ps.understood(known):
		return ""
	case operator != "":
		return prefix + e.Key + " " + operator + " { '" + strings.Join(e.Values, "', '") + "' }"
	case e.Operator == metav1.LabelSelectorOpExists:
		return "has(" + prefix + e.Key + ")"
	}
	return "! has(" + prefix + e.Key + ")"
}

func (ps *problems) labelKey(field, k string) bool {
	ok := len(validation.IsQualifiedName(k)) == 0
	if !ok {
		ps.Add(field, "must be a label key: [DNS name/]at most 63 letters, digits, '-', '_' and '.'", k)
	}
	return ok
}

func (ps *problems) labelValue(field, v string) bool {
	ok := len(validation.IsValidLabelValue(v)) == 0
	if !ok {
		ps.Add(field, "must be at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", v)
	}
	return ok
}

// protocolPorts holds the ports of a rule for one protocol; none means all ports.
type protocolPorts struct {
	protocol model.RuleProtocol
	ports    []model.PortMatch
}

// portList collects the ports of a rule by protocol; a port with neither number nor name means all ports of its protocol.
type portList struct {
	protocols []protocolPorts
	all       []model.Protocol
}

func (l *portList) addPort(p model.Protocol, m model.PortMatch) {
	name := model.RuleProtocol{Name: strings.ToLower(p.String())}
	i := slices.IndexFunc(l.protocols, func(x protocolPorts) bool { return x.protocol == name })
	if i < 0 {
		i = len(l.protocols)
		l.protocols = append(l.protocols, protocolPorts{protocol: name})
	}
	if m == (model.PortMatch{}) {
		l.all = append(l.all, p)
	} else {
		l.protocols[i].ports = append(l.protocols[i].ports, m)
	}
}

// addName adds a port by name, of the protocol that the container port has.
func (l *portList) addName(m model.PortMatch) {
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		l.addPort(p, m)
	}
}

// portsByProtocol returns the protocols by name, with their ports simplified. No entry means all protocols.
func (l *portList) portsByProtocol() []protocolPorts {
	if len(l.protocols) == 0 {
		return []protocolPorts{{}}
	}
	for i := range l.protocols {
		p := &l.protocols[i]
		p.ports = simplify(p.ports)
		if slices.ContainsFunc(l.all, func(a model.Protocol) bool { return strings.ToLower(a.String()) == p.protocol.Name }) {
			p.ports = nil
		}
	}
	slices.SortFunc(l.protocols, func(a, b protocolPorts) int { return strings.Compare(a.protocol.Name, b.protocol.Name) })
	return l.protocols
}

// simplify sorts names first, and joins ranges that overlap or touch.
func simplify(list []model.PortMatch) []model.PortMatch {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b model.PortMatch) int {
		if (a.Name == "") != (b.Name == "") {
			return strings.Compare(b.Name, a.Name)
		}
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	var out []model.PortMatch
	for _, m := range list {
		if len(out) > 0 {
			last := &out[len(out)-1]
			if *last == m {
				continue
			}
			if m.Name == "" && last.Name == "" && uint32(m.First) <= uint32(last.Last)+1 {
				last.Last = max(last.Last, m.Last)
				continue
			}
		}
		out = append(out, m)
	}
	return out
}

// portRange reads first and last, both inclusive.
func (ps *problems) portRange(firstField string, first int32, lastField string, last int32) model.PortMatch {
	m := model.PortMatch{First: ps.ReadPort(firstField, first), Last: ps.ReadPort(lastField, last)}
	if m.First > m.Last && m.Last != 0 {
		ps.Add(lastField, "must not be less than "+strconv.Itoa(int(m.First)), last)
	}
	return m
}

// cross returns one rule for each peer with each protocol; inbound makes the peer the source. No peer means everyone.
func cross(inbound bool, peers []model.Peer, ports []protocolPorts) []model.Rule {
	if len(peers) == 0 {
		peers = []model.Peer{{}}
	}
	var out []model.Rule
	for _, pp := range ports {
		for _, peer := range peers {
			r := model.Rule{Protocol: pp.protocol}
			if inbound {
				r.Source = peer
				r.Destination.Ports = pp.ports
			} else {
				r.Destination = peer
				r.Destination.Ports = pp.ports
			}
			out = append(out, r)
		}
	}
	return out
}

// except reads the ranges excluded from a range: each lies inside it and is smaller.
func (ps *problems) except(field string, list []string, of netip.Prefix) []netip.Prefix {
	out := ps.Prefixes(field, list)
	for i, s := range list {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err == nil && of.IsValid() && (!of.Contains(p.Addr()) || p.Bits() <= of.Bits()) {
			ps.Add(check.ElementPath(field, i), "must be a part of "+of.String(), s)
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
