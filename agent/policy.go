package agent

import (
	"context"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
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
