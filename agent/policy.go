package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// newPolicies wires policies: the processor drives the renderer of access lists, which writes values. For an input's access
// lists: nat44 has not translated IPv4 yet; cnat has, and without a renderer for IPv6 nothing is translated.
func newPolicies(cfg Config, values *controller.Values) *policy.Processor {
	c := policy.Config{NodeName: cfg.NodeName, View4: dataplane.PreDNAT, View6: dataplane.PostDNAT, TrustNodeAddresses: cfg.TrustNodeAddresses, Limits: cfg.Limits}
	if cfg.postDNAT4() {
		c.View4 = dataplane.PostDNAT
	}
	if cfg.Driver != nil {
		return policy.New(c, cfg.Driver)
	}
	driver := acl.New(acl.Config{SourceCheck: cfg.SourceCheck, Evaluated: cfg.deniesUnknown()}, values)
	if cfg.Felix != nil {
		return policy.NewStream(c, cfg.Override, driver)
	}
	return policy.New(c, driver)
}

// named replaces the renderer's name of a policy, from Felix's messages, by the object.
func (p *parts) named(notes []model.Note) []model.Note {
	if p.policies == nil {
		return notes
	}
	out := slices.Clone(notes)
	for i := range out {
		switch ref := &out[i].Ref; ref.Kind {
		case acl.KindPolicy:
			tier, name, _ := strings.Cut(ref.Name, "|")
			*ref = p.policies.PolicyRef(tier, name)
		case acl.KindProfile:
			*ref = policy.ProfileRef(ref.Name)
		case acl.KindWorkload:
			ns, name, _ := strings.Cut(ref.Name, "/")
			*ref = model.Ref{Kind: model.KindPod, Namespace: ns, Name: name}
		}
	}
	return out
}

// PolicyStatus is the state of one policy on this node.
type PolicyStatus struct {
	Object  string   `json:"object"` // "NetworkPolicy prod/web"
	Tier    string   `json:"tier,omitempty"`
	State   string   `json:"state"` // CONFIGURED, PENDING, …; IDLE: it applies to nothing here; PARTIAL: a part of it fails closed; REFUSED: it is not enforced at all
	Reasons []string `json:"reasons,omitempty"`
	Text    string   `json:"text,omitempty"` // its scope, in one line
}

// failsClosed is the prefix of reasons about unknown parts of a policy.
const failsClosed = "what was not understood fails closed: "

// policyStatuses joins the reports of the processor, the renderer and VPP about each policy; notes are the renderer's by
// object. It returns the objects that are policies.
func (p *picture) policyStatuses(out *Status, st *controller.Status, notes map[model.Ref][]model.Note) map[model.Ref]bool {
	known := map[model.Ref]bool{}
	refused, unwellKeys := map[model.Ref]event.Change{}, map[string]event.ValueStatus{}
	for _, ch := range st.Refused {
		refused[ch.Ref] = ch
	}
	for _, v := range st.Unwell {
		unwellKeys[v.Key] = v
	}
	for _, s := range p.policyList {
		ref := s.Policy.Ref()
		known[ref] = true
		status := policyStatus(s, unwellKeys, notes)
		if out.driver != nil {
			status = drivenStatus(s, out.driver)
		}
		for _, n := range slices.Concat(s.Notes, notes[ref]) {
			if status.Reasons = append(status.Reasons, n.Reason); n.Refused {
				status.State = worse(status.State, statePartial)
			}
		}
		if s.Refused != "" {
			status.State = worse(status.State, stateRefused)
			status.Reasons = append(status.Reasons, s.Refused)
		}
		if ch, is := refused[ref]; is {
			status.State = worse(status.State, statePartial)
			status.Reasons = append([]string{failsClosed + ch.Err.Error()}, status.Reasons...)
		}
		out.Policies = append(out.Policies, status)
	}
	for _, ch := range st.Refused {
		if p.policies != nil && policy.IsPolicy(ch.Ref.Kind) && !known[ch.Ref] {
			known[ch.Ref] = true
			out.Policies = append(out.Policies, PolicyStatus{Object: ch.Ref.String(), State: stateRefused, Reasons: []string{ch.Err.Error()}})
		}
	}
	slices.SortFunc(out.Policies, func(a, b PolicyStatus) int { return strings.Compare(a.Object, b.Object) })
	return known
}

func policyStatus(s policy.Status, unwellKeys map[string]event.ValueStatus, notes map[model.Ref][]model.Note) PolicyStatus {
	status := PolicyStatus{Object: s.Policy.ID.String(), Tier: s.Policy.Tier, State: stateIdle, Text: governs(s)}
	if len(s.Endpoints) == 0 {
		return status
	}
	worst, enforced := event.Configured, 0
	for _, at := range s.Endpoints {
		if at.Host {
			missing := notes[model.Ref{Kind: model.KindHostEndpoint, Name: at.Endpoint}]
			for _, n := range missing {
				status.Reasons = append(status.Reasons, n.Ref.String()+": "+n.Reason)
			}
			nowhere := slices.ContainsFunc(missing, func(n model.Note) bool { return n.Reason == acl.HostNotEnforced })
			if !nowhere && !s.Policy.Untracked && !s.Policy.PreDNAT {
				enforced++
				worst = max(worst, status.listed(at, unwellKeys))
			}
			continue
		}
		enforced++
		worst = max(worst, status.listed(at, unwellKeys))
		if len(at.Interfaces) == 0 {
			worst = max(worst, event.Pending)
			status.Reasons = append(status.Reasons, at.Endpoint+": no interface of VPP leads to it")
		}
	}
	if status.State = worst.String(); enforced == 0 {
		status.State = stateRefused
	}
	return status
}

// listed adds the problems of the access lists of an endpoint's interfaces, and returns the worst state.
func (s *PolicyStatus) listed(at policy.Applied, unwellKeys map[string]event.ValueStatus) event.State {
	worst := event.Configured
	for _, name := range at.Interfaces {
		if v, bad := unwellKeys[kv.Key(&contivacl.InterfaceACLs{Interface: name})]; bad {
			worst = max(worst, v.State)
			s.Reasons = append(s.Reasons, at.Endpoint+": "+v.Line())
		}
	}
	return worst
}

// governs returns a text such as "tier default, ingress 2 rules, egress 1 rule, of prod/web-0, prod/web-1".
func governs(s policy.Status) string {
	text := "tier " + s.Policy.Tier
	both := !s.Policy.Ingress && !s.Policy.Egress
	for _, d := range []struct {
		name  string
		on    bool
		rules int
	}{
		{"ingress", s.Policy.Ingress || both, len(s.Policy.InboundRules)},
		{"egress", s.Policy.Egress || both, len(s.Policy.OutboundRules)},
	} {
		switch {
		case d.on && d.rules == 1:
			text += ", " + d.name + " 1 rule"
		case d.on:
			text += fmt.Sprintf(", %s %d rules", d.name, d.rules)
		}
	}
	var names []string
	for _, at := range s.Endpoints {
		names = append(names, at.Endpoint)
	}
	if len(names) > 0 {
		text += ", of " + strings.Join(names, ", ")
	}
	return text
}

// countPolicies updates the gauges of policies.
func (p *parts) countPolicies() {
	if p.policies == nil {
		return
	}
	n := p.policies.Counts()
	p.metrics.policies.Set(float64(n.Policies))
	p.metrics.policyEndpoints.Set(float64(n.Endpoints))
	switch p.vppagent.Snapshot().Reclassify {
	case vppagent.ReclassifyOn:
		p.metrics.reclassify.Set(1)
	case vppagent.ReclassifyOff:
		p.metrics.reclassify.Set(0)
	default:
		p.metrics.reclassify.Set(-1)
	}
}

// Explain returns the policy rule behind a rule of an interface's access lists: the rule number in the input list, or with
// output in the output list; -1 is the end of the list. False: the list is foreign.
func (s *Stepper) Explain(iface string, output bool, place, rule int) (policy.Reason, bool) {
	if !output && s.vppagent.Fronted(iface) {
		if place == 0 && rule >= 0 {
			return s.explainRange(rule)
		}
		place--
	}
	if s.policies == nil {
		return policy.Reason{}, false
	}
	return s.policies.Explain(iface, output, place, rule)
}

// Policy returns the policies of a pod of this node; false: it has no endpoint here.
func (s *Stepper) Policy(pod model.PodID) (*policy.Description, bool) { return s.describe(pod) }

func (p *parts) describe(pod model.PodID) (*policy.Description, bool) {
	if p.policies == nil {
		return nil, false
	}
	return p.policies.Describe(pod)
}

// Policy returns the policies of a pod of this node, with VPP's counters if rules are counted; nil: it has no endpoint here.
func (a *Agent) Policy(ctx context.Context, pod model.PodID) (*policy.Description, error) {
	var d *policy.Description
	err := a.controller.Ask(ctx, func(*controller.Controller) { d, _ = a.describe(pod) })
	if err == nil && d != nil && a.counters.Counters != nil {
		d = a.counters.Describe(ctx, pod, d)
	}
	return d, err
}
