package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Description lists the policies of one endpoint as they are applied, in order of evaluation.
type Description struct {
	Endpoint   string   `json:"endpoint"` // "namespace/name" of a pod, the name of a host endpoint
	Host       bool     `json:"hostEndpoint,omitempty"`
	Interfaces []string `json:"interfaces,omitempty"` // in VPP; none: not found yet
	Addresses  []string `json:"addresses"`
	Ingress    []Tier   `json:"ingress"`
	Egress     []Tier   `json:"egress"`
	Forward    *Forward `json:"forward,omitempty"`  // of a host endpoint: for forwarded traffic
	Profiles   []string `json:"profiles,omitempty"` // they decide when no policy does
	// Spoofed counts the packets that the source check dropped, because their source address is not the pod's; nil: not counted, or
	// the endpoint has no source check.
	Spoofed *Hits `json:"sourceCheckDropped,omitempty"`
	// Uncounted is the reason why no rule has Hits although counts were requested; otherwise "".
	Uncounted string `json:"uncounted,omitempty"`
}

// Forward holds the tiers of a host endpoint for forwarded traffic.
type Forward struct {
	Ingress []Tier `json:"ingress"`
	Egress  []Tier `json:"egress"`
}

// Tier is a tier with the policies that apply to an endpoint in one direction.
type Tier struct {
	Name     string   `json:"name"`
	Policies []Policy `json:"policies"`
	End      string   `json:"end"` // action for packets that no policy of the tier decides: "deny", "pass"
}

// Policy is a policy as it applies in one direction.
type Policy struct {
	Object   string `json:"object"` // "NetworkPolicy prod/web"
	Selector string `json:"selector,omitempty"`
	Staged   bool   `json:"staged,omitempty"` // listed, not enforced
	Rules    []Rule `json:"rules"`
}

// Rule is a rule as it applies.
type Rule struct {
	Name   string `json:"name"`           // "ingress rule 2", as the object counts its rules
	Action string `json:"action"`         // allow, deny, pass, log
	Match  string `json:"match"`          // "tcp from {app == 'client'} to ports 80"; "" everything
	Hits   *Hits  `json:"hits,omitempty"` // nil: not counted, see DescribeCounted

	Words   string   `json:"words,omitempty"`   // Match of a rule of a Kubernetes policy, in the words of kubectl describe; "" if it has none
	Matches *Matches `json:"matches,omitempty"` // Match as fields; nil: unknown
}

// Describe returns the policies of a pod of this node; false: the pod has no endpoint here.
func (p *Processor) Describe(id model.PodID) (*Description, bool) { return p.describePod(id, nil) }

func (p *Processor) describePod(id model.PodID, tally map[counted]*Hits) (*Description, bool) {
	w := p.sent.workloads[id.String()]
	if w == nil {
		return nil, false
	}
	d := &Description{
		Endpoint: id.String(), Profiles: w.ProfileIds, Addresses: slices.Concat(w.Ipv4Nets, w.Ipv6Nets),
		Ingress: p.describe(w.Tiers, false, tally), Egress: p.describe(w.Tiers, true, tally), Interfaces: p.interfacesOf(id.String()),
		Spoofed: tally[spoofed],
	}
	return d, true
}

// DescribeHost returns the policies of a host endpoint of this node; false: no such endpoint exists.
func (p *Processor) DescribeHost(name string) (*Description, bool) {
	h := p.sent.hosts[name]
	if h == nil {
		return nil, false
	}
	d := &Description{
		Endpoint: name, Host: true, Profiles: h.ProfileIds, Addresses: slices.Concat(h.ExpectedIpv4Addrs, h.ExpectedIpv6Addrs),
		Ingress: p.describe(h.Tiers, false, nil), Egress: p.describe(h.Tiers, true, nil),
	}
	if len(h.ForwardTiers) > 0 {
		d.Forward = &Forward{Ingress: p.describe(h.ForwardTiers, false, nil), Egress: p.describe(h.ForwardTiers, true, nil)}
	}
	return d, true
}

func (p *Processor) describe(tiers []*felix.TierInfo, egress bool, tally map[counted]*Hits) []Tier {
	out := []Tier{}
	for _, t := range tiers {
		names := policiesOf(t, egress)
		if len(names) == 0 {
			continue
		}
		tier := Tier{Name: t.Name, End: "deny"}
		if model.Action(t.DefaultAction).Passes() || len(enforced(t, egress)) == 0 {
			tier.End = "pass"
		}
		for _, name := range names {
			tier.Policies = append(tier.Policies, p.describePolicy(t.Name, name, egress, tally))
		}
		out = append(out, tier)
	}
	return out
}

func (p *Processor) describePolicy(tier, name string, egress bool, tally map[counted]*Hits) Policy {
	msg := p.sent.policies[model.WireName{Tier: tier, Name: name}]
	out := Policy{Object: p.PolicyRef(tier, name).String(), Selector: msg.GetOriginalSelector(), Staged: staged(name), Rules: []Rule{}}
	var object []model.Rule
	kubernetes := false
	if obj, ok := p.graph.Origin(tier, name); ok {
		kubernetes = isKubernetes(obj.ID.Kind)
		if object = obj.InboundRules; egress {
			object = obj.OutboundRules
		}
	}
	at := 0
	for i, r := range rulesOf(msg, egress) {
		for at < len(object) && originOf(&object[at], at) != r.RuleId { // this rule was not understood and is not in force
			at++
		}
		id := r.RuleId
		if p.stream != nil {
			id = "rule " + strconv.Itoa(i+1)
		}
		rule := Rule{Name: named(id, egress), Action: actionText(r.Action), Hits: tally[counted{model.WireName{Tier: tier, Name: name}, egress, i}]}
		switch {
		case p.stream != nil:
			said := written(r)
			_, rule.Match, _ = strings.Cut(said.String(), " ")
			rule.Matches = matchesOf(&said)
		case at < len(object):
			_, rule.Match, _ = strings.Cut(object[at].String(), " ")
			rule.Matches = matchesOf(&object[at])
			if kubernetes {
				rule.Words, _ = kubernetesWords(&object[at], egress)
			}
			at++
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

// originOf returns the id that the calculation gives to a rule without one.
func originOf(r *model.Rule, i int) string {
	if r.Origin != "" {
		return r.Origin
	}
	return "rule " + strconv.Itoa(i+1)
}

// DescribeCounted is Describe with the hits of each rule, taken from the lists of the pod's interfaces. A rule that is in none of
// these lists has no hits: either it never decides (pass, log, staged), or no peer matches it.
//
// All pods with the same policy share one list in VPP, and so they share its count.
func (p *Processor) DescribeCounted(id model.PodID, lists []Counted) (*Description, bool) {
	return p.describePod(id, p.tally(id.String(), lists))
}
